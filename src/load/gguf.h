#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "load/tensor_file.h"

namespace tessera::load {

/// A GGUF file (version 2 or 3). Tensors of block types appear as F32.
class GgufFile : public TensorFile {
 public:
  /// Reads and checks the header. Throws Error(model) naming file, tensor, value and expectation.
  explicit GgufFile(const std::string& path);
  /// Same for memory owned by `owner` (tests, fuzzing).
  GgufFile(std::string_view image, std::string name, std::shared_ptr<const void> owner);
};

/// Whether a file begins as GGUF, or is empty with such a name. Throws Error(model) if it cannot be
/// read.
bool is_gguf(const std::string& path);
/// Opens a file by its magic bytes: GGUF, else safetensors. Throws Error(model).
TensorFile open_tensor_file(const std::string& path);

}  // namespace tessera::load
