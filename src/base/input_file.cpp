#include "base/input_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/descriptor.h"
#include "base/fail.h"
#include "base/foreign_format.h"

namespace tessera::base {
namespace {

constexpr int64_t kMostAtOnce = int64_t{1} << 30;  // the system takes 2 GB

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

// O_NONBLOCK: a pipe without a writer opens at once and is then refused.
InputFile::InputFile(const std::string& path, ErrorCode code)
    : path_(path),
      code_(code),
      file_(above_streams(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY))) {
  if (file_ < 0) fail(code, "cannot open '{}': {}", path, std::strerror(errno));
  struct stat info {};
  const bool has_info = fstat(file_, &info) == 0;
  if (!has_info || !S_ISREG(info.st_mode)) {
    const int reason = errno;
    close(file_);
    if (!has_info) fail(code, "cannot read '{}': {}", path, std::strerror(reason));
    fail(code, "cannot read '{}': it is {}; expected a regular file", path, kind_of(info.st_mode));
  }
  size_ = info.st_size;
  device_ = info.st_dev;
  inode_ = info.st_ino;
  seconds_ = info.st_mtim.tv_sec;
  nanoseconds_ = info.st_mtim.tv_nsec;
}

InputFile::~InputFile() {
  if (mapped_) munmap(mapped_, static_cast<size_t>(size_));
  close(file_);
}

std::string InputFile::identity() const {
  return fmt::format("{}:{}:{}:{}.{}", device_, inode_, size_, seconds_, nanoseconds_);
}

void InputFile::read(int64_t at, void* to, int64_t bytes) const {
  auto* into = static_cast<char*>(to);
  if (at < 0 || bytes < 0 || at > size_ - bytes) refuse_change();
  while (bytes > 0) {
    const auto piece = static_cast<size_t>(bytes < kMostAtOnce ? bytes : kMostAtOnce);
    const ssize_t count = pread(file_, into, piece, at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(code_, "cannot read '{}': {}", path_, std::strerror(errno));
    if (count == 0) refuse_change();
    into += count;
    at += count;
    bytes -= count;
  }
  check_unchanged();  // after the read, to detect changes before and during the read
}

const std::byte* InputFile::map() const {
  const std::lock_guard lock(mapping_);
  if (!mapped_) {
    void* const pages =
        mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED | MAP_NORESERVE, file_, 0);
    if (pages == MAP_FAILED) fail(code_, "cannot map '{}': {}", path_, std::strerror(errno));
#if defined(__linux__)
    // If the system has huge pages for files, they are read and mapped in units of two megabytes.
    (void)madvise(pages, static_cast<size_t>(size_), MADV_HUGEPAGE);
#endif
    mapped_ = pages;
  }
  check_unchanged();
  return static_cast<const std::byte*>(mapped_);
}

void InputFile::check_unchanged() const {
  struct stat now {};
  if (fstat(file_, &now) != 0 || now.st_size != size_ || now.st_mtim.tv_sec != seconds_ ||
      now.st_mtim.tv_nsec != nanoseconds_)
    refuse_change();
}

void InputFile::refuse_change() const {
  fail(code_, "'{}' was changed while it was in use: let nothing write to it, and start again",
       path_);
}

std::string read_file(const std::string& path, int64_t most, ErrorCode code) {
  const InputFile file(path, code);
  if (file.size() > most)
    fail(code, "'{}' has {} bytes; expected at most {}", path, file.size(), most);
  std::string bytes(static_cast<size_t>(file.size()), '\0');
  file.read(0, bytes.data(), file.size());
  refuse_foreign(bytes, path, code);
  return bytes;
}

}  // namespace tessera::base
