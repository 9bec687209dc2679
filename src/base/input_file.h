#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "tessera/error.h"

namespace tessera::base {

/// A regular file, open for reading. If the file shrinks or changes during use, reads fail with an
/// error, never with a signal or a mixture of old and new bytes.
class InputFile {
 public:
  /// Throws Error(code) naming the path and the reason; pipes, devices and folders are refused at
  /// once. Later errors have `code`, too.
  explicit InputFile(const std::string& path, ErrorCode code = ErrorCode::model);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  /// Bytes at the time of opening.
  int64_t size() const { return size_; }
  /// Device, inode, size and time of change: equal for two openings of the same unchanged file.
  std::string identity() const;
  /// Reads bytes [at, at + bytes) to `to`; thread-safe. Throws Error if the file has changed since
  /// opening.
  void read(int64_t at, void* to, int64_t bytes) const;
  /// All bytes, mapped at the first call into the page cache's memory, for the lifetime of the
  /// object. Throws as read() does. Changes of the file after the call are not detected: access to
  /// bytes beyond a shrunk file ends the process (SIGBUS).
  const std::byte* map() const;

 private:
  [[noreturn]] void refuse_change() const;
  void check_unchanged() const;
  std::string path_;
  ErrorCode code_;
  int file_ = -1;
  int64_t size_ = 0;
  uint64_t device_ = 0, inode_ = 0;
  int64_t seconds_ = 0, nanoseconds_ = 0;  ///< time of the last change
  mutable std::mutex mapping_;
  mutable void* mapped_ = nullptr;
};

/// All bytes of a regular file. Throws Error(code) for more than `most`, or a foreign format.
std::string read_file(const std::string& path, int64_t most, ErrorCode code = ErrorCode::model);

/// The limit of read_file() for vocabularies, templates and other texts of a model.
inline constexpr int64_t kLargestText = int64_t{64} << 20;

}  // namespace tessera::base
