#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/job.h"

namespace tessera::server {

/// Jobs and their files in a folder: jobs.sqlite, and results/ID/N.png. A job that put() has
/// returned for is there after the process was killed. May be used from all threads.
class Store {
 public:
  /// Opens or makes the folder; "" is a temporary one, which goes with the store. Throws
  /// Error(usage) for one that another server has, or that cannot be written; Error(model) for a
  /// damaged one.
  explicit Store(const std::string& folder);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Writes a new or a changed job; a new one gets its number. Throws Refusal(507) when it cannot.
  void put(JobRecord& record);
  std::optional<JobRecord> find(const std::string& id) const;
  /// Without their reports, the newest first, of `client` ("": all), from before job `before` ("":
  /// the newest).
  std::vector<JobRecord> list(const std::string& client, int limit,
                              const std::string& before) const;
  /// Those that waited or ran when the last server ended, in their order.
  std::vector<JobRecord> unfinished() const;
  /// Ids of jobs that ended before a time.
  std::vector<std::string> ended_before(double time, int limit) const;
  /// Forgets a job, and its files.
  void remove(const std::string& id);

  /// Where files of a job go; makes the folder. Throws Error(usage).
  std::string folder_of(const std::string& id) const;
  /// Drops what a run left that did not end.
  void clear(const std::string& id) const;
  const std::string& folder() const { return folder_; }

 private:
  struct Database;
  void open();
  void close();
  void remove_strays() const;

  std::string folder_;
  bool temporary_ = false;
  int lock_ = -1;
  std::unique_ptr<Database> database_;
};

}  // namespace tessera::server
