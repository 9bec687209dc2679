#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "server/descriptor.h"

namespace tessera::server {

/// application_id of the database of a store: "TSSR".
inline constexpr uint32_t kStoreId = 0x54535352;

/// True for a job id: 24 characters of 0-9 and a-f.
bool is_job_id(const std::string& text);
/// True for a result name: N.png or N.mp4.
bool is_result_name(const std::string& name);

/// Folder of a store: `jobs.sqlite`, `lock` and `results/ID/N.png`. Only its user can access it
/// (folders 0700, files 0600). The folder is locked. Symbolic links are never followed, and only
/// files of these names are removed.
class StoreFolder {
 public:
  /// Opens or creates the folder; "" is a temporary folder, removed by the destructor. Throws
  /// Error(usage) for a folder that another server locks, that cannot be written, is a symbolic
  /// link, is owned by another user or writable by others, or holds other files and no database.
  explicit StoreFolder(const std::string& path);
  ~StoreFolder();
  StoreFolder(const StoreFolder&) = delete;
  StoreFolder& operator=(const StoreFolder&) = delete;

  /// Absolute path without symbolic links.
  const std::string& path() const { return path_; }
  std::string database() const;
  /// True if a database existed before.
  bool had_database() const { return had_database_; }
  /// True if `results` exists and is not empty.
  bool has_results() const;

  /// Creates or checks `results` and removes access of others. Only for a folder known to be a
  /// store. Throws Error(usage), as above.
  void open_results();
  /// Creates the folder of a job. Throws Error(usage).
  std::string make_folder(const std::string& id) const;
  /// Path of a result; "" if missing or a symbolic link.
  std::string file(const std::string& id, const std::string& name) const;
  /// Bytes of a result; 0 if missing.
  int64_t bytes(const std::string& id, const std::string& name) const;
  /// Removes the files of a job, and the folder if then empty.
  void clear(const std::string& id) const;
  /// Removes folders of unknown jobs.
  void clear_all_but(const std::set<std::string>& job_ids) const;

 private:
  [[noreturn]] void refuse(const std::string& reason) const;
  void open_or_make(const std::string& path);
  void check_contents();
  void check_file(const char* name) const;
  void take_lock();
  void make_database() const;

  std::string path_;
  bool temporary_ = false, had_database_ = false;
  Descriptor folder_, lock_;
};

}  // namespace tessera::server
