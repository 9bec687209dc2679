#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "load/tensor_entry.h"
#include "tensor/dtype.h"

namespace tessera::load {

/// Longest JSON header, as in the reference implementation.
inline constexpr int64_t kLongestHeader = 100'000'000;

/// Bytes of a file of `file_bytes` before its data, as its first 8 bytes say (fewer, if it has no
/// more); bytes behind them help to say what a wrong `file` is. Throws Error(model).
int64_t safetensors_data_offset(std::string_view begin, int64_t file_bytes,
                                const std::string& file);
/// Reads and checks the header of a file of `file_bytes`, whose first bytes, up to the data or
/// further, are `begin`: its entries cover the data without overlap or hole. Throws Error(model).
FileHeader parse_safetensors_header(std::string_view begin, int64_t file_bytes,
                                    const std::string& file);

/// The element type of a dtype as the file spells it; nothing if this build cannot compute with it.
std::optional<tensor::DType> dtype_of(const std::string& spelled);
/// "F32", "BF16", ... for writing.
const char* spelled(tensor::DType dtype);

}  // namespace tessera::load
