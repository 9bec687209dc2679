#pragma once

#include <cstddef>
#include <string>

namespace tessera::base {

/// Throws Error(usage): what could not be done with an output, why (errno), and what to do.
[[noreturn]] void refuse_output(const char* what, const std::string& path, int reason);

/// A file that appears whole or not at all: written beside its target under a name of its own,
/// renamed by commit(). A file that is replaced keeps its permissions. A link is followed; a device
/// or a pipe is written to as it is.
class OutputFile {
 public:
  /// Throws Error(usage) naming the path and the reason.
  explicit OutputFile(const std::string& path);
  /// Removes what was written unless commit() came.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Throws Error(usage), as when the disk is full or a limit on the size of files is met, and
  /// Error(cancelled) when the thread's work is stopped.
  void write(const void* data, size_t bytes);
  /// Closes and renames; with an error nothing stays behind.
  void commit();

 private:
  void make_beside();
  [[noreturn]] void abandon(const char* what, int reason);
  std::string path_, target_, beside_;  ///< as given, where it ends, where it is written meanwhile
  int file_ = -1;
};

/// Throws Error(usage) if a file could not be written there; leaves nothing behind. Ask before work
/// that would be lost.
void check_writable(const std::string& path);

}  // namespace tessera::base
