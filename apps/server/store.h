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

/// Jobs and their files in a StoreFolder. A job survives a crash after put() returned; after tidy()
/// no removed data is left in the file. Thread-safe.
class Store {
 public:
  /// Opens or creates the folder; "" is a temporary folder, removed with the store. Throws
  /// Error(usage) for the cases of StoreFolder and for a database of another program; Error(model)
  /// for a damaged database.
  explicit Store(const std::string& folder);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Writes a new or changed job; a new job gets a number. Throws Refusal(507) on failure.
  void put(JobRecord& record);
  std::optional<JobRecord> find(const std::string& id) const;
  /// {id, brief_of() the job}, newest first, of `client` ("": all), before job `before` ("": from
  /// the newest).
  std::vector<std::pair<std::string, Json>> list(const std::string& client, int limit,
                                                 const std::string& before) const;
  /// Jobs that waited or ran at the last server's end, in order.
  std::vector<JobRecord> unfinished() const;
  /// Ids of jobs of `client` ("": all) that ended before a time, oldest first.
  std::vector<std::string> ended_before(double time, int limit,
                                        const std::string& client = "") const;
  /// Clients with jobs.
  std::vector<std::string> clients() const;
  /// Bytes of jobs with their files, by client.
  std::map<std::string, int64_t> bytes() const;
  /// Removes a job and its files.
  void remove(const std::string& id);
  /// Purges removed data from the file if anything was removed since the last call.
  void tidy();

  /// Folder for files of a job, created if missing. Throws Error(usage).
  std::string folder_of(const std::string& id) const { return folder_.make_folder(id); }
  /// Path of a result; "" if missing.
  std::string file(const std::string& id, const std::string& name) const {
    return folder_.file(id, name);
  }
  /// Removes files of an unfinished run.
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
