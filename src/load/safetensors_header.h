#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace tessera::load {

/// What the header of a safetensors file says about one tensor.
struct TensorEntry {
  std::string dtype;           ///< as the file spells it: "F32", "BF16", ...
  std::vector<int64_t> sizes;  ///< outermost first; empty: one element
  int64_t begin = 0, end = 0;  ///< bytes, from the start of the data
  int64_t bytes() const { return end - begin; }
};

/// A checked header: every entry lies in the data, its bytes fit dtype and shape, and the entries
/// cover the data without overlap or hole.
struct SafetensorsHeader {
  std::map<std::string, TensorEntry> tensors;
  std::map<std::string, std::string> metadata;
  int64_t data_offset = 0;  ///< bytes of the file before the data
};

/// Longest JSON header, as in the reference implementation.
inline constexpr int64_t kLongestHeader = 100'000'000;

/// Bytes of a file of `file_bytes` before its data, as its first 8 bytes say (fewer, if it has no
/// more); bytes behind them help to say what a wrong `file` is. Throws Error(model).
int64_t safetensors_data_offset(std::string_view begin, int64_t file_bytes,
                                const std::string& file);
/// Reads and checks the header of a file of `file_bytes`, whose first bytes, up to the data or
/// further, are `begin`. Throws Error(model).
SafetensorsHeader parse_safetensors_header(std::string_view begin, int64_t file_bytes,
                                           const std::string& file);

/// The element type of a dtype as the file spells it; nothing if this build cannot compute with it.
std::optional<tensor::DType> dtype_of(const std::string& spelled);
/// "F32", "BF16", ... for writing.
const char* spelled(tensor::DType dtype);

}  // namespace tessera::load
