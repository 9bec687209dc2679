#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/input_file.h"
#include "load/tensor_entry.h"
#include "tensor/tensor.h"

namespace tessera::load {

/// A file of named tensors in any format, open and checked; tensors are read on demand. Cheap to
/// copy.
class TensorFile {
 public:
  const std::string& path() const { return path_; }
  /// Names and entries in alphabetic order.
  const std::map<std::string, TensorEntry>& entries() const { return header_->tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_->metadata; }
  bool has(const std::string& name) const { return header_->tensors.contains(name); }
  /// Throws Error(model) if the name is missing.
  const TensorEntry& entry(const std::string& name) const;
  /// Element type of a tensor. Throws Error(model) for an unsupported type.
  tensor::DType dtype(const std::string& name) const;
  /// Reads a tensor with the threads of the scope, not counted by the scope's tracker; blocks
  /// become floats. Throws Error(model) for a missing tensor, an unsupported dtype, more than
  /// Shape::kMaxRank axes, an invalid scale, or a file changed since opening.
  tensor::Tensor get(const std::string& name) const;
  /// Same, into memory of bytes() of the tensor.
  void read(const std::string& name, std::byte* to) const;
  /// Reads the stored bytes, row by row, into memory of stored_bytes() of the tensor: blocks stay
  /// blocks.
  void read_stored(const std::string& name, std::byte* to) const;
  /// Maps `bytes` bytes of the file (base::InputFile::map) from the start of a tensor, in the form
  /// needed by kernels: 64-byte aligned, and readable for 512 bytes past the end. Null if
  /// unaligned, too close to the end of the file, or not stored as plain elements.
  std::shared_ptr<const std::byte> map(const std::string& name, int64_t bytes) const;
  /// Same bytes with other names for parts of the tensors.
  TensorFile with(std::map<std::string, TensorEntry> tensors) const;
  /// Device, inode, size and change time: equal for two openings of the same unchanged file.
  const std::string& identity() const { return identity_; }

 protected:
  using Parse = std::function<FileHeader(const base::InputFile& file)>;
  /// Opens a file and reads the header, unless a recent header has the same identity.
  TensorFile(const std::string& path, const Parse& parse);
  /// Uses memory owned by `owner`.
  TensorFile(std::string_view image, std::string name, std::shared_ptr<const void> owner,
             FileHeader header);

 private:
  void read_bytes(int64_t at, std::byte* to, int64_t bytes) const;
  void expand(const std::string& name, const TensorEntry& entry, std::byte* to) const;

  std::string path_, identity_;
  std::shared_ptr<const base::InputFile> file_;  ///< null: image_ is used
  std::string_view image_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const FileHeader> header_;
};

}  // namespace tessera::load
