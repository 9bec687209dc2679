// libFuzzer target: any text is JSON within the limits, or fails with an Error(model) of a single
// line.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.h"
#include "tessera/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const tessera::base::Json json = tessera::base::parse_json(text, "fuzz");
    const std::string written = json.dump();
    if (tessera::base::parse_json(written, "fuzz").dump() != written) std::abort();
  } catch (const tessera::Error& error) {
    const std::string message = error.what();
    if (error.code() != tessera::ErrorCode::model) std::abort();
    if (message.find('\n') != std::string::npos || message.size() > 1000) std::abort();
  }
  return 0;
}
