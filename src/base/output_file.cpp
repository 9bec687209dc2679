#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/fail.h"

namespace tessera::base {
namespace {

std::atomic<int> made{0};  // names only

const char* remedy(int reason) {
  switch (reason) {
    case EISDIR: return "; name a file in it";
    case ENOENT: return "; make its folder first";
    case ENOSPC:
    case EDQUOT: return "; free some space, or write to another disk";
    case EACCES:
    case EPERM:
    case EROFS: return "; name a file that you may write";
    default: return "";
  }
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path) {
  struct stat info {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) refuse("write", EISDIR);
  if (exists && access(path.c_str(), W_OK) != 0) refuse("write", errno);
  if (exists && !S_ISREG(info.st_mode)) {  // a device or a pipe cannot be replaced
    file_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                           &std::free);
    target_ = real ? real.get() : path;  // where a link leads to
    beside_ = fmt::format("{}.tmp-{}-{}", target_, getpid(), made.fetch_add(1));
    file_ = open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  }
  if (file_ < 0) refuse("write", errno);
}

OutputFile::~OutputFile() {
  if (file_ < 0) return;
  close(file_);
  if (!beside_.empty()) unlink(beside_.c_str());
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

// No fsync: it guards against a loss of power, not of this process, and waits for other programs'
// data.
void OutputFile::commit() {
  if (close(std::exchange(file_, -1)) != 0 && errno != EINTR) {  // where a late write may fail
    const int reason = errno;
    if (!beside_.empty()) unlink(beside_.c_str());
    refuse("write", reason);
  }
  if (beside_.empty() || std::rename(beside_.c_str(), target_.c_str()) == 0) return;
  const int reason = errno;
  unlink(beside_.c_str());
  refuse("put in place", reason);
}

void OutputFile::refuse(const char* what, int reason) const {
  fail(ErrorCode::usage, "cannot {} '{}': {}{}", what, path_, std::strerror(reason),
       remedy(reason));
}

void check_writable(const std::string& path) {
  struct stat info {};
  const bool special =
      stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
  if (special && access(path.c_str(), W_OK) == 0) return;  // opening a pipe would wake its reader
  const OutputFile probe(path);
}

}  // namespace tessera::base
