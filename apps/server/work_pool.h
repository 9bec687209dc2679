#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tessera::server {

/// Threads for work that is too slow for a listener: reading bodies, tokenising, the store. Clients
/// take turns, and a client never occupies all threads.
class WorkPool {
 public:
  explicit WorkPool(int threads);
  /// Drops work that has not begun and waits for the rest.
  ~WorkPool();
  /// `work` must not throw. Dropped after the pool has closed.
  void add(const std::string& client, std::function<void()> work);
  void close();

 private:
  struct Line {
    std::deque<std::function<void()>> works;
    int running = 0;
  };
  void run();
  std::map<std::string, Line>::iterator next();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Line> lines_;
  std::string last_;  // client of the last turn
  const int most_;    // maximum threads of a client
  bool closing_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace tessera::server
