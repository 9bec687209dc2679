#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "tessera/error.h"

namespace tessera::base {

/// A regular file that is open for reading. What is read and shrinks or changes while somebody uses
/// it gives an error, never a signal or a mixture of old and new bytes.
class InputFile {
 public:
  /// Throws Error(code) naming the path and the reason; a pipe, a device or a folder is refused at
  /// once. `code` is also that of later errors.
  explicit InputFile(const std::string& path, ErrorCode code = ErrorCode::model);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  /// Bytes, when it was opened.
  int64_t size() const { return size_; }
  /// Device, inode, size and time of change: equal for two openings of the same unchanged file.
  std::string identity() const;
  /// Reads bytes [at, at + bytes) to `to`; thread-safe. Throws Error when the file is not the one
  /// that was opened any more.
  void read(int64_t at, void* to, int64_t bytes) const;
  /// All bytes, in the memory that the system has for the file, for as long as this lives; mapped
  /// at the first call. Throws as read() does. What happens to the file behind the call is not
  /// noticed: bytes that it loses end the process (SIGBUS).
  const std::byte* map() const;

 private:
  [[noreturn]] void refuse_change() const;
  void check_unchanged() const;
  std::string path_;
  ErrorCode code_;
  int file_ = -1;
  int64_t size_ = 0;
  uint64_t device_ = 0, inode_ = 0;
  int64_t seconds_ = 0, nanoseconds_ = 0;  ///< of its last change
  mutable std::mutex mapping_;
  mutable void* mapped_ = nullptr;
};

/// All bytes of a regular file. Throws Error(code) for more than `most`, or a foreign format.
std::string read_file(const std::string& path, int64_t most, ErrorCode code = ErrorCode::model);

/// What read_file takes of vocabularies, templates and other text of a model.
inline constexpr int64_t kLargestText = int64_t{64} << 20;

}  // namespace tessera::base
