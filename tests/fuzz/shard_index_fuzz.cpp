// libFuzzer target: any text is a valid index of the shards in its folder, or fails with an
// Error(model) of a single line.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "load/shard_index.h"
#include "tessera/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto shards =
        tessera::load::parse_shard_index(tessera::base::parse_json(text, "fuzz"), "fuzz");
    if (shards.empty()) std::abort();
    for (const auto& [shard, tensors] : shards)
      if (tensors.empty() || shard.empty() || shard.find('/') != std::string::npos || shard == "..")
        std::abort();
  } catch (const tessera::Error& error) {
    const std::string message = error.what();
    if (error.code() != tessera::ErrorCode::model) std::abort();
    if (message.find('\n') != std::string::npos || message.size() > 1000) std::abort();
  }
  return 0;
}
