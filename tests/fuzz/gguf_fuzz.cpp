// libFuzzer target: any bytes are a GGUF file that can be read, or an Error(model) of one line.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "load/gguf.h"
#include "tessera/error.h"

namespace {

void check(const tessera::Error& error) {
  const std::string message = error.what();
  if (error.code() != tessera::ErrorCode::model) std::abort();
  if (message.find('\n') != std::string::npos || message.size() > 1000) std::abort();
}

void read_all(const tessera::load::GgufFile& file) {
  for (const auto& [name, entry] : file.entries()) {
    if (entry.elements() > 1 << 20) continue;  // blocks grow by ten
    try {
      const tessera::tensor::Tensor x = file.get(name);
      if (x.bytes() != entry.bytes()) std::abort();
      volatile float sum = 0;
      for (const float value : x.to_floats()) sum = sum + value;
    } catch (const tessera::Error& error) {
      check(error);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // An exact copy on the heap, so that one byte too far is seen.
  const std::unique_ptr<char[]> exact(new char[size]);
  std::copy(data, data + size, exact.get());
  try {
    read_all(tessera::load::GgufFile(std::string_view(exact.get(), size), "fuzz", nullptr));
  } catch (const tessera::Error& error) {
    check(error);
  }
  return 0;
}
