#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

#include "base/stop.h"
#include "tessera/error.h"

namespace tessera::base {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_json(text, "x.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::model);
    return e.what();
  }
  return "was accepted";
}

TEST(Json, ReadsWhatIsRight) {
  EXPECT_EQ(parse_json(R"({"a": [1, {"b": null}], "c": "d"})", "x.json")["a"][0], 1);
}

TEST(Json, RefusesDamage) {
  for (const char* text : {"", "{", "{\"a\" 1}", "[1,]", "nul", "{}x", "\"\xff\""})
    EXPECT_NE(refusal(text).find("x.json"), std::string::npos) << text;
}

TEST(Json, RefusesAKeyTwice) {
  EXPECT_NE(refusal(R"({"a": 1, "a": 2})").find("'a' stands twice"), std::string::npos);
  EXPECT_EQ(refusal(R"({"a": {"b": 1}, "c": {"b": 2}})"), "was accepted");
}

TEST(Json, RefusesTooDeep) {
  EXPECT_EQ(refusal(std::string(90, '[') + std::string(90, ']')), "was accepted");
  EXPECT_NE(refusal(std::string(100000, '[')).find("deeper"), std::string::npos);
}

TEST(Json, BuildsWhatStandsThere) {
  const char* text =
      R"({"a": [1, -2, 2.5, true, null, "x", [], {}], "b": {"c": {"d": [[1], [2, 3]]}, "e": 1}, "": 18446744073709551615})";
  EXPECT_EQ(parse_json(text, "x.json"), Json::parse(text));
  EXPECT_EQ(parse_json("3", "x.json"), 3);
  EXPECT_EQ(parse_json("[[], [[]], 0]", "x.json").dump(), "[[],[[]],0]");
}

TEST(Json, EndsWhenItIsStopped) {
  std::stop_source source;
  source.request_stop();
  const BindStop bind(source.get_token());
  for (const char* text : {"[1, 2]", "{\"a\": 1}", "\"x\""}) try {
      parse_json(text, "x.json");
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::cancelled);
    }
}

TEST(Json, NamesAFileThatIsNotThere) { EXPECT_THROW(read_json("/nowhere/x.json"), Error); }

}  // namespace
}  // namespace tessera::base
