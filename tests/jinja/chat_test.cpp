#include "jinja/chat.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::jinja {
namespace {

TEST(Chat, KeepsToolsNullsPartsAndTheOrderOfKeys) {
  const ValueDict values = chat_values(R"({"tools": [{"z": 1, "a": 2.5}], "messages": [
      {"role": "assistant", "content": null, "tool_calls": []},
      {"role": "user", "content": [{"type": "text"}]}]})");
  EXPECT_EQ(to_json(*values.find("tools"), {}), "[{\"z\": 1, \"a\": 2.5}]");
  EXPECT_EQ(values.find("messages")->items().size(), 2u);
  EXPECT_EQ(chat_values(R"([{"role": "user", "content": "x"}])").size(), 1u);
}

TEST(Chat, RefusesWhatIsNone) {
  for (const char* text : {"", "{", "[]", "{}", "[1]", "7", R"({"messages": 3})",
                           R"([{"role": "user"}])", R"([{"role": 1, "content": "x"}])",
                           R"([{"role": "user", "content": [{"type": "image", "image": "x"}]}])",
                           R"([{"role": "user", "content": 7}])",
                           R"([{"role": "user", "content": "x", "n": 18446744073709551615}])"}) {
    try {
      chat_values(text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage) << text;
    }
  }
}

}  // namespace
}  // namespace tessera::jinja
