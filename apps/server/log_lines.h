#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace tessera::server {

/// Writes lines of a log. A line is written at once if the reader has room, else by a thread, so
/// that a full pipe never holds up a request. Lines beyond kMostLines are dropped and counted.
class LogLines {
 public:
  static constexpr size_t kMostLines = 4096;

  /// The descriptor stays the caller's.
  explicit LogLines(int descriptor);
  /// Writes what the reader takes within half a second.
  ~LogLines();
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  /// Queues a line, without its line feed. Never waits for the reader.
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
