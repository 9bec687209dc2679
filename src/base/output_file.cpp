#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/fail.h"

namespace tessera::base {
namespace {

std::atomic<int> made{0};  // names only

}  // namespace

OutputFile::OutputFile(const std::string& path)
    : path_(path), beside_(fmt::format("{}.tmp-{}-{}", path, getpid(), made.fetch_add(1))) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) refuse("write", EISDIR);
  file_ = open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file_ < 0) refuse("write", errno);
}

OutputFile::~OutputFile() {
  if (file_ < 0) return;
  close(file_);
  unlink(beside_.c_str());
}

void OutputFile::write(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t wrote = ::write(file_, at, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) refuse("write", wrote == 0 ? ENOSPC : errno);
    at += wrote;
    bytes -= static_cast<size_t>(wrote);
  }
}

void OutputFile::commit() {
  if (fsync(file_) != 0 && errno != EINVAL && errno != EROFS) refuse("write", errno);
  if (std::rename(beside_.c_str(), path_.c_str()) != 0) refuse("put in place", errno);
  close(file_);
  file_ = -1;
}

void OutputFile::refuse(const char* what, int reason) const {
  fail(ErrorCode::usage, "cannot {} '{}': {}", what, path_, std::strerror(reason));
}

}  // namespace tessera::base
