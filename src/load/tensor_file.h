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

/// A file of named tensors, open and checked, of whatever format; tensors are read when they are
/// asked for. Cheap to copy.
class TensorFile {
 public:
  const std::string& path() const { return path_; }
  /// Names and entries in alphabetic order.
  const std::map<std::string, TensorEntry>& entries() const { return header_->tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_->metadata; }
  bool has(const std::string& name) const { return header_->tensors.contains(name); }
  /// Throws Error(model) if there is none.
  const TensorEntry& entry(const std::string& name) const;
  /// Its element type. Throws Error(model) for one that cannot be computed with.
  tensor::DType dtype(const std::string& name) const;
  /// The tensor, read by the threads of the scope and not counted by its tracker; blocks become
  /// floats. Throws Error(model) for a missing tensor, a dtype that cannot be computed with, more
  /// than Shape::kMaxRank axes, a scale that is no number, or a file that has changed since it was
  /// opened.
  tensor::Tensor get(const std::string& name) const;
  /// The same into memory for its bytes().
  void read(const std::string& name, std::byte* to) const;
  /// The bytes as the file holds them, row after row of the tensor, into memory for its
  /// stored_bytes(): blocks stay blocks.
  void read_stored(const std::string& name, std::byte* to) const;
  /// `bytes` of the mapped file (base::InputFile::map) from a tensor's first on, as kernels read
  /// them: 64-byte aligned, and readable for 512 bytes behind their end. Null where they do not lie
  /// so, the file ends, or its bytes are not the elements.
  std::shared_ptr<const std::byte> map(const std::string& name, int64_t bytes) const;
  /// The same bytes with other names for parts of the tensors.
  TensorFile with(std::map<std::string, TensorEntry> tensors) const;
  /// Device, inode, size and time of change: equal for two openings of the same unchanged file.
  const std::string& identity() const { return identity_; }

 protected:
  using Parse = std::function<FileHeader(const base::InputFile& file)>;
  /// Opens a file and reads its header, unless a file of that identity was among the last ones.
  TensorFile(const std::string& path, const Parse& parse);
  /// Over memory that `owner` keeps alive.
  TensorFile(std::string_view image, std::string name, std::shared_ptr<const void> owner,
             FileHeader header);

 private:
  void read_bytes(int64_t at, std::byte* to, int64_t bytes) const;
  void expand(const std::string& name, const TensorEntry& entry, std::byte* to) const;

  std::string path_, identity_;
  std::shared_ptr<const base::InputFile> file_;  ///< null: image_
  std::string_view image_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const FileHeader> header_;
};

}  // namespace tessera::load
