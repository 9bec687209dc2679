#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/input_file.h"
#include "load/safetensors_header.h"
#include "tensor/tensor.h"

namespace tessera::load {

/// A safetensors file, open and checked; its tensors are read when they are asked for. Cheap to
/// copy.
class SafetensorsFile {
 public:
  /// Reads and checks the header. Throws Error(model) naming file, tensor, value and expectation.
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
  /// Its element type. Throws Error(model) for one that cannot be computed with.
  tensor::DType dtype(const std::string& name) const;
  /// The tensor, read by the threads of the scope and not counted by its tracker. Throws
  /// Error(model) for a missing tensor, a dtype that cannot be computed with, more than
  /// Shape::kMaxRank axes, or a file that has changed since it was opened.
  tensor::Tensor get(const std::string& name) const;
  /// The same into memory for its bytes().
  void read(const std::string& name, std::byte* to) const;
  /// `bytes` of the mapped file (base::InputFile::map) from a tensor's first on, as kernels read
  /// them: 64-byte aligned, and readable for 512 bytes behind their end. Null where they do not lie
  /// so, or the file ends.
  std::shared_ptr<const std::byte> map(const std::string& name, int64_t bytes) const;
  /// The same bytes with other names for parts of the tensors.
  SafetensorsFile with(std::map<std::string, TensorEntry> tensors) const;
  /// Device, inode, size and time of change: equal for two openings of the same unchanged file.
  const std::string& identity() const { return identity_; }

 private:
  std::string path_, identity_;
  std::shared_ptr<const base::InputFile> file_;  ///< null: image_
  std::string_view image_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const SafetensorsHeader> header_;
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
