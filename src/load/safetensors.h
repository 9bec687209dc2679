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
  /// Same for memory owned by `owner` (tests, fuzzing).
  SafetensorsFile(std::string_view image, std::string name, std::shared_ptr<const void> owner);
};

/// Writes tensors (cpu, any layout) in alphabetic order after a 64-byte aligned header, into a
/// temporary file beside `path`, renamed at the end. Wider elements come first, so that every
/// tensor is aligned. Throws Error(usage) if the file cannot be written.
void write_safetensors(const std::string& path,
                       const std::map<std::string, tensor::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// A tensor to be written: header data, and a function that returns the elements (cpu, dense) on
/// demand.
struct PlannedTensor {
  std::string name, dtype;  ///< dtype in the file's spelling
  std::vector<int64_t> sizes;
  int64_t bytes = 0;
  std::function<tensor::Tensor()> make;
};
/// Same, but the tensors need not be in memory together; written in the given order.
void write_safetensors(const std::string& path, const std::vector<PlannedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera::load
