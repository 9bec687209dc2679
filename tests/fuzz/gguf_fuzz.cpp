// libFuzzer target: any bytes are a readable GGUF file, with any family's names too, or fail with
// an Error(model) of a single line.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "load/gguf.h"
#include "load/name_map.h"
#include "load/name_tables.h"
#include "load/nibble_blocks.h"
#include "tessera/error.h"

namespace {

void check(const tessera::Error& error) {
  const std::string message = error.what();
  if (error.code() != tessera::ErrorCode::model) std::abort();
  if (message.find('\n') != std::string::npos || message.size() > 1000) std::abort();
}

void read_all(const tessera::load::TensorFile& file) {
  for (const auto& [name, entry] : file.entries()) {
    if (entry.elements() > 1 << 20) continue;  // blocks grow by ten
    try {
      const tessera::tensor::Tensor x = file.get(name);
      if (x.bytes() != entry.bytes()) std::abort();
      volatile float sum = 0;
      for (const float value : x.to_floats()) sum = sum + value;
      if (tessera::load::has_nibble_blocks(entry)) {
        const auto nibbles = tessera::load::nibbles_of(file, name);
        if (2 * nibbles.values.bytes() != entry.elements()) std::abort();
      }
    } catch (const tessera::Error& error) {
      check(error);
    }
  }
}

// The same by the names of each family whose table applies.
void read_renamed(const tessera::load::TensorFile& file) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : file.entries()) names.push_back(name);
  for (const tessera::load::NameTable* table : tessera::load::name_tables()) try {
      const tessera::load::NameMap map(*table, names);
      if (map.applies()) read_all(tessera::load::with_model_names(file, map));
    } catch (const tessera::Error& error) {
      check(error);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // An exact copy on the heap, so reads beyond the end are detected.
  const std::unique_ptr<char[]> exact(new char[size]);
  std::copy(data, data + size, exact.get());
  try {
    const tessera::load::GgufFile file(std::string_view(exact.get(), size), "fuzz", nullptr);
    read_all(file);
    read_renamed(file);
  } catch (const tessera::Error& error) {
    check(error);
  }
  return 0;
}
