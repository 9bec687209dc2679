#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/fail.h"

namespace tessera::base {

MappedFile::MappedFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(file >= 0, ErrorCode::model, "cannot open '{}': {}", path, std::strerror(errno));
  struct stat info {};
  const bool known = fstat(file, &info) == 0;
  const bool regular = known && S_ISREG(info.st_mode);
  void* data = nullptr;
  if (regular && info.st_size > 0)
    data = mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  const int reason = errno;
  close(file);
  require(regular, ErrorCode::model, "cannot read '{}': it is no regular file", path);
  require(data != MAP_FAILED, ErrorCode::model, "cannot map '{}': {}", path, std::strerror(reason));
  data_ = static_cast<std::byte*>(data);
  size_ = static_cast<size_t>(info.st_size);
}

MappedFile::~MappedFile() {
  if (data_) munmap(data_, size_);
}

}  // namespace tessera::base
