#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/job.h"
#include "server/store_folder.h"

namespace tessera::server {

/// Jobs and their files in a StoreFolder. A job that put() has returned for is there after the
/// process was killed; of one that was removed nothing is left in the file after tidy(). May be
/// used from all threads.
class Store {
 public:
  /// Opens or makes the folder; "" is a temporary one, which goes with the store. Throws
  /// Error(usage) for what StoreFolder refuses and a database of another program; Error(model) for
  /// a damaged one.
  explicit Store(const std::string& folder);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Writes a new or a changed job; a new one gets its number. Throws Refusal(507) when it cannot.
  void put(JobRecord& record);
  std::optional<JobRecord> find(const std::string& id) const;
  /// {id, brief_of() its job}: the newest first, of `client` ("": all), from before job `before`
  /// ("": the newest).
  std::vector<std::pair<std::string, Json>> list(const std::string& client, int limit,
                                                 const std::string& before) const;
  /// Those that waited or ran when the last server ended, in their order.
  std::vector<JobRecord> unfinished() const;
  /// Ids of jobs that ended before a time, of `client` ("": all), the oldest first.
  std::vector<std::string> ended_before(double time, int limit,
                                        const std::string& client = "") const;
  /// Who has jobs here.
  std::vector<std::string> clients() const;
  /// What jobs take, their files among it, by their client.
  std::map<std::string, int64_t> bytes() const;
  /// Forgets a job, and its files.
  void remove(const std::string& id);
  /// Takes what was removed out of the file, if anything was since the last time.
  void tidy();

  /// Where files of a job go; makes the folder. Throws Error(usage).
  std::string folder_of(const std::string& id) const { return folder_.make_folder(id); }
  /// The path of a result; "" where it is not there.
  std::string file(const std::string& id, const std::string& name) const {
    return folder_.file(id, name);
  }
  /// Drops what a run left that did not end.
  void clear(const std::string& id) const { folder_.clear(id); }
  const std::string& folder() const { return folder_.path(); }

 private:
  struct Database;
  void open();
  void upgrade();
  std::vector<std::string> ids() const;

  StoreFolder folder_;
  std::unique_ptr<Database> database_;
};

}  // namespace tessera::server
