#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "server/job.h"

namespace tessera::server {

/// Queue of waiting jobs, fair between clients: the client served longest ago is next, and jobs of
/// a client are in order. Not thread-safe.
class FairQueue {
 public:
  void push(const JobPtr& job);
  /// Next job; null if empty.
  JobPtr pop();
  /// Takes at most `most` jobs accepted by `fits`, in the order of pop().
  std::vector<JobPtr> pop_more(size_t most, const std::function<bool(const Job&)>& fits);
  /// First job accepted by `fits` in the order of pop(); null: none.
  JobPtr find(const std::function<bool(const Job&)>& fits) const;
  /// Number of waiting jobs of a client.
  size_t count(const std::string& client) const;
  /// Removes a job. False if the job was not waiting.
  bool remove(const Job& job);
  size_t size() const { return size_; }
  /// All jobs, in the order of pop().
  std::vector<JobPtr> order() const;

 private:
  struct Line {
    std::deque<JobPtr> jobs;
    uint64_t served = 0;  // turn of the last service
  };
  std::map<std::string, Line> lines_;
  uint64_t turn_ = 0;
  size_t size_ = 0;
};

}  // namespace tessera::server
