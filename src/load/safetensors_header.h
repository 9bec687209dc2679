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

/// Offset of the data in a file of `file_bytes`, from the first 8 bytes (fewer in a shorter file);
/// more bytes help to identify the format of a wrong `file`. Throws Error(model).
int64_t safetensors_data_offset(std::string_view begin, int64_t file_bytes,
                                const std::string& file);
/// Parses and checks the header of a file of `file_bytes`; `begin` holds the first bytes, at least
/// up to the data. The entries must cover the data without overlap or hole. Throws Error(model).
FileHeader parse_safetensors_header(std::string_view begin, int64_t file_bytes,
                                    const std::string& file);

/// Element type of a dtype in the file's spelling; nothing if unsupported.
std::optional<tensor::DType> dtype_of(const std::string& name);
/// Spells a dtype for writing: "F32", "BF16", ...
const char* spelled(tensor::DType dtype);

}  // namespace tessera::load
