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

/// Threads that do what takes longer than a listener may: reading bodies, tokenising, the store.
/// Clients take turns, and one client never has all threads.
class WorkPool {
 public:
  explicit WorkPool(int threads);
  /// Drops what has not begun, and waits for the rest.
  ~WorkPool();
  /// `work` must not throw. Dropped once the pool closes.
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
  std::string last_;  // whose turn it was
  const int most_;    // threads of one client
  bool closing_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace tessera::server
