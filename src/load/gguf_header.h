#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "load/tensor_entry.h"

namespace tessera::load {

/// Reads `bytes` bytes of a file from byte `at` on, which are there.
using ReadAt = std::function<void(int64_t at, void* to, int64_t bytes)>;

/// Reads and checks what stands before the data of a GGUF file (version 2 or 3, little-endian) of
/// `file_bytes` bytes. Sizes are turned round to outermost first, and are those before a reshaping
/// where `comfy.gguf.orig_shape.NAME` says so. Of the keys the metadata holds
/// `general.architecture`, if it is there. The tensors cover the data in steps of the alignment,
/// without overlap or hole. Throws Error(model) naming `file`, tensor, value and expectation, also
/// for types that are not read.
FileHeader parse_gguf_header(const ReadAt& read, int64_t file_bytes, const std::string& file);

/// "GGUF".
inline constexpr std::string_view kGgufMagic = "GGUF";
/// The key that says of which kind a model is.
inline constexpr const char* kArchitecture = "general.architecture";

}  // namespace tessera::load
