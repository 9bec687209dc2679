#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "load/tensor_file.h"

namespace tessera::load {

/// A GGUF file (version 2 or 3). Tensors of block types are F32 for who reads them.
class GgufFile : public TensorFile {
 public:
  /// Reads and checks what stands before the data. Throws Error(model) naming file, tensor, value
  /// and expectation.
  explicit GgufFile(const std::string& path);
  /// The same over memory that `owner` keeps alive (tests, fuzzing).
  GgufFile(std::string_view image, std::string name, std::shared_ptr<const void> owner);
};

/// Opens a file by its first bytes: GGUF, else safetensors. Throws Error(model).
TensorFile open_tensor_file(const std::string& path);

}  // namespace tessera::load
