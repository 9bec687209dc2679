#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/json.h"
#include "load/tensor_entry.h"

namespace tessera::load {

/// Reads `bytes` bytes of a file from offset `at`, all inside the file.
using ReadAt = std::function<void(int64_t at, void* to, int64_t bytes)>;

/// Reads and checks the header of a GGUF file (version 2 or 3, little-endian) of `file_bytes`
/// bytes. Sizes are reversed to outermost first; `comfy.gguf.orig_shape.NAME` gives the sizes
/// before a reshape. The metadata keeps `general.architecture` only, if present. The tensors cover
/// the data in steps of the alignment, without overlap or hole. Throws Error(model) naming `file`,
/// tensor, value and expectation, also for unsupported types.
FileHeader parse_gguf_header(const ReadAt& read, int64_t file_bytes, const std::string& file);

/// All keys of such a header with their values: numbers (floats as their shortest decimals, null
/// for none), truths, texts, and lists of these. Throws Error(model) as above, for texts that are
/// not UTF-8, and for more than 2^23 values or 256 MB.
base::Json parse_gguf_metadata(const ReadAt& read, int64_t file_bytes, const std::string& file);

/// "GGUF".
inline constexpr std::string_view kGgufMagic = "GGUF";
/// Metadata key with the kind of the model.
inline constexpr const char* kArchitecture = "general.architecture";

}  // namespace tessera::load
