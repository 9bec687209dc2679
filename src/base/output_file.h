#pragma once

#include <cstddef>
#include <string>

namespace tessera::base {

/// Throws Error(usage) with the failed operation, the reason (errno) and a remedy.
[[noreturn]] void refuse_output(const char* action, const std::string& path, int reason);

/// A file that appears whole or not at all: written under a unique name beside its target, and
/// renamed by commit(). A replaced file's permissions are kept. Links are followed; devices and
/// pipes are written directly.
class OutputFile {
 public:
  /// Throws Error(usage) naming the path and the reason.
  explicit OutputFile(const std::string& path);
  /// Removes the written data unless commit() was called.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Throws Error(usage), for example if the disk is full or a limit on file sizes is reached, and
  /// Error(cancelled) when the thread's work is stopped.
  void write(const void* data, size_t bytes);
  /// Closes and renames; after an error nothing is left.
  void commit();

 private:
  void make_beside();
  [[noreturn]] void abandon(const char* action, int reason);
  std::string path_, target_, beside_;  ///< the given path, the resolved target, the temporary file
  int file_ = -1;
};

/// Throws Error(usage) if a file cannot be written there; leaves nothing behind. Call before long
/// work.
void check_writable(const std::string& path);

}  // namespace tessera::base
