#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "server/job.h"

namespace tessera::server {

/// Jobs that wait, fair by client: turns go to the client that was served longest ago, and within
/// a client in order. Not locked.
class FairQueue {
 public:
  void push(const JobPtr& job);
  /// The next one; null when none waits.
  JobPtr pop();
  /// The next ones in the order of pop() that `fits` says yes to, `most` at most.
  std::vector<JobPtr> pop_more(size_t most, const std::function<bool(const Job&)>& fits);
  /// The first in the order of pop() that `fits` says yes to; null: none.
  JobPtr find(const std::function<bool(const Job&)>& fits) const;
  /// How many of a client wait.
  size_t count(const std::string& client) const;
  /// Whether it waited, and does no more.
  bool remove(const Job& job);
  size_t size() const { return size_; }
  /// All, in the order of pop().
  std::vector<JobPtr> order() const;

 private:
  struct Line {
    std::deque<JobPtr> jobs;
    uint64_t served = 0;  // turn at which it was last served
  };
  std::map<std::string, Line> lines_;
  uint64_t turn_ = 0;
  size_t size_ = 0;
};

}  // namespace tessera::server
