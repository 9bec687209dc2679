#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "server/descriptor.h"

namespace tessera::server {

/// application_id of the database of a store: "TSSR".
inline constexpr uint32_t kStoreId = 0x54535352;

/// Whether a text is the id of a job: 24 of 0-9 and a-f.
bool is_job_id(const std::string& text);
/// Whether a name is that of a result: N.png or N.mp4.
bool is_result_name(const std::string& name);

/// The folder of a store: `jobs.sqlite`, `lock` and `results/ID/N.png`. It belongs to its user
/// alone (folders 0700, files 0600), is locked, and nothing in it is removed but files of these
/// names: no symbolic link is followed, and no other file is touched.
class StoreFolder {
 public:
  /// Opens or makes the folder; "" is a temporary one, which goes with this. Throws Error(usage)
  /// for one that another server has, that cannot be written, that is a symbolic link, another
  /// user's or writable for others, and for one that holds other files and no database.
  explicit StoreFolder(const std::string& given);
  ~StoreFolder();
  StoreFolder(const StoreFolder&) = delete;
  StoreFolder& operator=(const StoreFolder&) = delete;

  /// Absolute, without symbolic links.
  const std::string& path() const { return path_; }
  std::string database() const;
  /// Whether a database was there before.
  bool had_database() const { return had_database_; }
  /// Whether `results` is there and holds something.
  bool has_results() const;

  /// Of a folder that is known to be a store: makes `results`, or checks it, and closes the folders
  /// for others. Throws Error(usage), as above.
  void open_results();
  /// Makes the folder of a job. Throws Error(usage).
  std::string make_folder(const std::string& id) const;
  /// A path of a result; "" where no such file, or a symbolic link, is there.
  std::string file(const std::string& id, const std::string& name) const;
  /// Bytes of a result; 0 where there is none.
  int64_t bytes(const std::string& id, const std::string& name) const;
  /// Removes the files of a job, and its folder where nothing else is in it.
  void clear(const std::string& id) const;
  /// Removes those of jobs that are not known.
  void clear_all_but(const std::set<std::string>& known) const;

 private:
  [[noreturn]] void refuse(const std::string& why) const;
  void open_or_make(const std::string& given);
  void check_contents();
  void check_file(const char* name) const;
  void take_lock();
  void make_database() const;

  std::string path_;
  bool temporary_ = false, had_database_ = false;
  Descriptor folder_, lock_;
};

}  // namespace tessera::server
