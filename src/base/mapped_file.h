#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::base {

/// A file's bytes, mapped read only. Move is not needed: hold it by shared_ptr.
class MappedFile {
 public:
  /// Throws Error(model) naming the path and the reason. An empty file has size 0 and null data.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tessera::base
