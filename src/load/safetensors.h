#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "load/safetensors_header.h"
#include "load/tensor_file.h"
#include "tensor/tensor.h"

namespace tessera::load {

/// A safetensors file.
class SafetensorsFile : public TensorFile {
 public:
  /// Reads and checks the header. Throws Error(model) naming file, tensor, value and expectation.
  explicit SafetensorsFile(const std::string& path);
  /// The same over memory that `owner` keeps alive (tests, fuzzing).
  SafetensorsFile(std::string_view image, std::string name, std::shared_ptr<const void> owner);
};

/// Writes tensors (cpu, any layout) in alphabetic order behind a 64-byte aligned header, beside
/// `path` and renamed at the end. Wider elements stand first, so that every tensor is aligned.
/// Throws Error(usage) if the file cannot be written.
void write_safetensors(const std::string& path,
                       const std::map<std::string, tensor::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// A tensor that a file is to hold, as its header says, and what gives its elements (cpu, dense)
/// when their turn comes.
struct PlannedTensor {
  std::string name, dtype;  ///< dtype as the file spells it
  std::vector<int64_t> sizes;
  int64_t bytes = 0;
  std::function<tensor::Tensor()> make;
};
/// The same for tensors that need not be in memory together, in the order given.
void write_safetensors(const std::string& path, const std::vector<PlannedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera::load
