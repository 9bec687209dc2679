// libFuzzer target: any bytes are a readable safetensors file, or fail with an Error(model) of a
// single line.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "load/safetensors.h"
#include "tessera/error.h"

namespace {

void read_all(const tessera::load::SafetensorsFile& file) {
  for (const auto& [name, entry] : file.entries()) {
    try {
      const tessera::tensor::Tensor x = file.get(name);
      if (x.bytes() != entry.bytes()) std::abort();
      volatile float sum = 0;
      for (const float value : x.to_floats()) sum = sum + value;
    } catch (const tessera::Error& error) {
      if (error.code() != tessera::ErrorCode::model) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // An exact copy on the heap, so reads beyond the end are detected.
  const std::unique_ptr<char[]> exact(new char[size]);
  std::copy(data, data + size, exact.get());
  try {
    read_all(tessera::load::SafetensorsFile(std::string_view(exact.get(), size), "fuzz", nullptr));
  } catch (const tessera::Error& error) {
    const std::string message = error.what();
    if (error.code() != tessera::ErrorCode::model) std::abort();
    if (message.find('\n') != std::string::npos || message.size() > 1000) std::abort();
  }
  return 0;
}
