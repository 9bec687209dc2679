#include "base/output_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/descriptor.h"
#include "base/fail.h"
#include "base/leftovers.h"
#include "base/stop.h"

namespace tessera::base {
namespace {

constexpr size_t kPiece = size_t{4} << 20;  // between two checks of the stop token

const char* remedy(int reason) {
  switch (reason) {
    case EISDIR: return "; name a file in it";
    case ENOTDIR: return "; a part of its path is a file, not a folder";
    case ENAMETOOLONG: return "; choose a shorter name";
    case ENOENT: return "; make its folder first";
    case ENOSPC:
    case EDQUOT: return "; free some space, or write to another disk";
    case EFBIG: return "; raise the limit on the size of files (ulimit -f)";
    case EACCES:
    case EPERM:
    case EROFS: return "; name a file that you may write";
    default: return "";
  }
}

// Turns the signal of the limit on file sizes into an error of write(); the signal would end the
// program.
class WithoutSizeSignal {
 public:
  WithoutSizeSignal() {
    sigemptyset(&size_);
    sigaddset(&size_, SIGXFSZ);
    sigset_t pending;
    had_ = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &size_, &before_);
  }
  ~WithoutSizeSignal() {
    const timespec now{};
    while (!had_ && sigtimedwait(&size_, nullptr, &now) == -1 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutSizeSignal(const WithoutSizeSignal&) = delete;
  WithoutSizeSignal& operator=(const WithoutSizeSignal&) = delete;

 private:
  sigset_t size_{}, before_{};
  bool had_ = false;
};

}  // namespace

void refuse_output(const char* action, const std::string& path, int reason) {
  fail(ErrorCode::usage, "cannot {} '{}': {}{}", action, path, std::strerror(reason),
       remedy(reason));
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
  struct stat info {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) refuse_output("write", path_, errno);  // now, not after the work
  if (exists && S_ISDIR(info.st_mode)) refuse_output("write", path_, EISDIR);
  if (exists && access(path.c_str(), W_OK) != 0) refuse_output("write", path_, errno);
  if (exists && !S_ISREG(info.st_mode)) {  // a device or a pipe cannot be replaced
    file_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                           &std::free);
    target_ = real ? real.get() : path;  // resolved links
    make_beside();
  }
  file_ = above_streams(file_);
  if (file_ < 0) abandon("write", errno);
  if (!beside_.empty() && exists) fchmod(file_, info.st_mode & 0777);  // some disks have no modes
}

void OutputFile::make_beside() {
  do {
    if (file_ >= 0) close(file_);
    beside_ = name_beside(target_);
    file_ = open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (file_ >= 0 ? !hold(file_) : errno == EEXIST);
}

OutputFile::~OutputFile() {
  if (file_ < 0) return;
  if (!beside_.empty()) unlink(beside_.c_str());
  close(file_);
}

void OutputFile::write(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  const WithoutSizeSignal quiet;
  while (bytes > 0) {
    check_stop();
    const ssize_t wrote = ::write(file_, at, std::min(bytes, kPiece));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) refuse_output("write", path_, wrote == 0 ? ENOSPC : errno);
    at += wrote;
    bytes -= static_cast<size_t>(wrote);
  }
}

// No fsync: it protects against power failures, not against a crash of this process, and waits for
// other programs' data.
void OutputFile::commit() {
  const int lock = fcntl(file_, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);  // locked until renamed
  if (close(std::exchange(file_, lock)) != 0 && errno != EINTR)       // a late write may fail here
    abandon("write", errno);
  if (!beside_.empty() && std::rename(beside_.c_str(), target_.c_str()) != 0)
    abandon("put in place", errno);
  beside_.clear();
  if (lock >= 0) close(std::exchange(file_, -1));
}

void OutputFile::abandon(const char* action, int reason) {
  if (!beside_.empty()) unlink(beside_.c_str());
  if (file_ >= 0) close(std::exchange(file_, -1));
  refuse_output(action, path_, reason);
}

void check_writable(const std::string& path) {
  struct stat info {};
  const bool special =
      stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
  if (special && access(path.c_str(), W_OK) == 0) return;  // opening a pipe would wake its reader
  const OutputFile probe(path);
}

}  // namespace tessera::base
