#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "load/safetensors_header.h"
#include "tensor/tensor.h"

namespace tessera::load {

/// A safetensors file, mapped and checked; its tensors are views of the mapping. Cheap to copy.
class SafetensorsFile {
 public:
  /// Maps and checks the file. Throws Error(model) naming file, tensor, value and expectation.
  explicit SafetensorsFile(const std::string& path);
  /// The same over memory that `owner` keeps alive (tests, fuzzing).
  SafetensorsFile(std::string_view image, std::string name, std::shared_ptr<const void> owner);

  const std::string& path() const { return path_; }
  /// Names and entries in alphabetic order.
  const std::map<std::string, TensorEntry>& entries() const { return header_->tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_->metadata; }
  bool has(const std::string& name) const { return header_->tensors.contains(name); }
  /// Throws Error(model) if there is none.
  const TensorEntry& entry(const std::string& name) const;
  /// A view (a copy where the file's offset is not a multiple of the element's width): read only.
  /// Throws Error(model) for a missing tensor, a dtype that cannot be computed with, or more than
  /// Shape::kMaxRank axes.
  tensor::Tensor get(const std::string& name) const;
  /// Lets the system drop the pages of a tensor from memory; a later read gets them from the file.
  void release(const std::string& name) const;
  /// Device, inode, size and time of change: equal for two openings of the same unchanged file.
  const std::string& identity() const { return identity_; }

 private:
  std::string path_, identity_;
  std::string_view image_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const SafetensorsHeader> header_;
  bool mapped_ = false;
};

/// Writes tensors (cpu, any layout) in alphabetic order behind an 8-byte aligned header, beside
/// `path` and renamed at the end. Wider elements stand first, so that every tensor is aligned.
/// Throws Error(usage) if the file cannot be written.
void write_safetensors(const std::string& path,
                       const std::map<std::string, tensor::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace tessera::load
