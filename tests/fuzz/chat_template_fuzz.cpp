// libFuzzer target: any text is a chat template with UTF-8 output, or fails with an Error of a
// single line.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "jinja/chat.h"
#include "jinja/chat_template.h"
#include "tessera/error.h"
#include "tokenizer/unicode.h"

namespace {

using namespace tessera;
using namespace tessera::jinja;

const ValueDict& chat() {
  static const ValueDict kChat = chat_values(R"({"messages": [
      {"role": "system", "content": " S "}, {"role": "user", "content": "\u00e9 \ud83d\ude00"},
      {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f",
       "arguments": {"b": 1, "a": [1.5, true]}}}]}], "tools": [{"name": "f"}], "n": 3, "x": "abc"})");
  return kChat;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string source(reinterpret_cast<const char*>(data), size);
    const std::string text = ChatTemplate(source, "fuzz").render(chat(), 0);
    if (tokenizer::repaired(text) != text) std::abort();
  } catch (const Error& error) {
    const std::string message = error.what();
    if (error.code() != ErrorCode::model && error.code() != ErrorCode::usage) std::abort();
    if (message.find('\n') != std::string::npos || message.size() > 1000) std::abort();
  }
  return 0;
}
