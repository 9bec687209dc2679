// libFuzzer target: any text is a valid chat, unchanged by writing and reading again, or fails with
// an Error(usage) of a single line.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "jinja/chat.h"
#include "tessera/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera::jinja;
  try {
    const ValueDict chat = chat_values({reinterpret_cast<const char*>(data), size});
    const Value all(chat);
    const std::string written = to_json(all, {});
    if (to_json(Value(chat_values(written)), {}) != written) std::abort();
    shown(all);
  } catch (const tessera::Error& error) {
    const std::string message = error.what();
    if (error.code() != tessera::ErrorCode::usage) std::abort();
    if (message.find('\n') != std::string::npos || message.size() > 1000) std::abort();
  }
  return 0;
}
