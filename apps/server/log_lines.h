#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::server {

/// Writes log lines. A line is written at once if the reader has room, otherwise by a thread, so
/// that a full pipe never blocks a request. Lines beyond kMostLines are dropped and counted.
class LogLines {
 public:
  static constexpr size_t kMostLines = 4096;

  /// Does not own the descriptor.
  explicit LogLines(int descriptor);
  /// Writes the remaining lines for at most half a second.
  ~LogLines();
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  /// Queues a line without line feed. Never blocks.
  void add(std::string line);

 private:
  void write_lines();
  bool write(const std::string& text);
  bool write_at_once(const std::string& text) const;

  int descriptor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> lines_;
  int64_t dropped_ = 0;
  bool ends_ = false, writes_ = false;
  std::thread writer_;
};

}  // namespace tessera::server
