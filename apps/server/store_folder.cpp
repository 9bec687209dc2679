#include "server/store_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "tessera/error.h"

namespace tessera::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTemporary = "tessera-serve-";
constexpr size_t kRandomLetters = 6;                               // appended by mkdtemp
constexpr const char kMark[] = "temporary tessera-serve store\n";  // content of the lock file
constexpr const char* kResults = "results";
constexpr const char* kLock = "lock";
constexpr const char* kDatabase = "jobs.sqlite";
constexpr const char* kDatabaseFiles[] = {"jobs.sqlite", "jobs.sqlite-wal", "jobs.sqlite-shm",
                                          "jobs.sqlite-journal"};
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

std::string reason() { return std::strerror(errno); }

bool is_hex(const std::string& text) {
  return text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Files that a run writes into the job's folder, including partial files.
bool is_file_of_job(const std::string& name) {
  const std::string half = ".tessera-";
  return is_result_name(name) || name == "preview.png" ||
         (name.starts_with(half) && name.size() == half.size() + 16 &&
          is_hex(name.substr(half.size())));
}

Descriptor open_folder(int in, const std::string& name) {
  return Descriptor(::openat(in, name.c_str(), kFolderFlags));
}

std::vector<std::string> names_in(const Descriptor& folder) {
  std::vector<std::string> names;
  DIR* const list = ::fdopendir(::openat(folder.get(), ".", kFolderFlags));
  if (!list) return names;
  while (const dirent* entry = ::readdir(list)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(list);
  return names;
}

void clear_job(const Descriptor& results, const std::string& id) {
  const Descriptor folder = open_folder(results.get(), id);
  if (!folder) return;
  for (const std::string& name : names_in(folder))
    if (is_file_of_job(name)) ::unlinkat(folder.get(), name.c_str(), 0);
  ::unlinkat(results.get(), id.c_str(), AT_REMOVEDIR);
}

// Removes all files of a temporary store, and the folder if then empty.
void remove_temporary(const std::string& path, const Descriptor& folder) {
  if (const Descriptor results = open_folder(folder.get(), kResults))
    for (const std::string& name : names_in(results))
      if (is_job_id(name)) clear_job(results, name);
  ::unlinkat(folder.get(), kResults, AT_REMOVEDIR);
  for (const char* name : kDatabaseFiles) ::unlinkat(folder.get(), name, 0);
  ::unlinkat(folder.get(), kLock, 0);
  ::rmdir(path.c_str());
}

bool is_temporary_name(const std::string& name) {
  const std::string begin = kTemporary;
  return name.starts_with(begin) && name.size() == begin.size() + kRandomLetters;
}

bool is_marked(const Descriptor& lock) {
  char text[sizeof kMark] = {};
  return ::pread(lock.get(), text, sizeof text, 0) == ssize_t(sizeof kMark - 1) &&
         std::strcmp(text, kMark) == 0;
}

// True if the header marks a job database.
bool is_stamped(const Descriptor& folder) {
  constexpr off_t kPlace = 68;  // offset of application_id in SQLite's format, big-endian
  unsigned char id[4] = {};
  const Descriptor file(
      ::openat(folder.get(), kDatabase, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file || ::pread(file.get(), id, sizeof id, kPlace) != ssize_t(sizeof id)) return false;
  return (uint32_t{id[0]} << 24 | uint32_t{id[1]} << 16 | uint32_t{id[2]} << 8 | id[3]) == kStoreId;
}

bool is_own(const struct stat& status) { return status.st_uid == ::geteuid(); }

// Removes temporary stores of killed servers: their lock is free.
void sweep_temporary(const fs::path& among) {
  const Descriptor list(::open(among.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!list) return;
  for (const std::string& name : names_in(list)) {
    if (!is_temporary_name(name)) continue;
    const Descriptor folder = open_folder(list.get(), name);
    struct stat status {};
    if (!folder || ::fstat(folder.get(), &status) != 0 || !is_own(status) ||
        (status.st_mode & 0077) != 0)
      continue;
    const Descriptor lock(
        ::openat(folder.get(), kLock, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!lock || ::fstat(lock.get(), &status) != 0 || !S_ISREG(status.st_mode) || !is_own(status))
      continue;
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 && is_marked(lock))
      remove_temporary(among / name, folder);
  }
}

std::string make_temporary() {
  std::error_code none;
  const fs::path among = fs::temp_directory_path(none);
  if (none)
    throw Error(ErrorCode::usage, "there is no folder for temporary files (TMPDIR): " +
                                      none.message() + "; name a folder with --store");
  sweep_temporary(among);
  std::string name = (among / (std::string(kTemporary) + "XXXXXX")).string();
  if (!mkdtemp(name.data()))
    throw Error(ErrorCode::usage, "cannot make a temporary folder '" + name + "': " + reason() +
                                      "; name one with --store");
  return name;
}

// Strips "/" and "/." from the end: with them, a symbolic link would be followed.
std::string without_end(std::string path) {
  while (path.size() > 1 && (path.ends_with('/') || path.ends_with("/."))) path.pop_back();
  return path;
}

}  // namespace

bool is_job_id(const std::string& text) { return text.size() == 24 && is_hex(text); }

bool is_result_name(const std::string& name) {
  const size_t dot = name.find('.');
  if (dot == 0 || dot == std::string::npos || dot > 6) return false;
  return std::all_of(name.begin(), name.begin() + ptrdiff_t(dot),
                     [](char c) { return c >= '0' && c <= '9'; }) &&
         (name.substr(dot) == ".png" || name.substr(dot) == ".mp4");
}

StoreFolder::StoreFolder(const std::string& path) : temporary_(path.empty()) {
  open_or_make(temporary_ ? make_temporary() : path);
  try {
    check_contents();
    take_lock();
    for (const char* name : kDatabaseFiles) check_file(name);
    make_database();
  } catch (...) {
    if (temporary_) remove_temporary(path_, folder_);
    throw;
  }
}

StoreFolder::~StoreFolder() {
  if (temporary_) remove_temporary(path_, folder_);
}

void StoreFolder::refuse(const std::string& reason) const {
  throw Error(ErrorCode::usage, "--store '" + path_ + "': " + reason);
}

void StoreFolder::open_or_make(const std::string& path) {
  path_ = without_end(path);
  std::error_code error;
  struct stat status {};
  if (::lstat(path_.c_str(), &status) != 0) {
    if (const fs::path above = fs::path(path_).parent_path(); !above.empty())
      fs::create_directories(above, error);
    if (::mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST)
      refuse("cannot be made: " + reason() + "; name a folder that can");
  } else if (S_ISLNK(status.st_mode)) {
    refuse("is a symbolic link; name the folder that it leads to");
  }
  folder_ = Descriptor(::open(path_.c_str(), kFolderFlags));
  if (!folder_ || ::fstat(folder_.get(), &status) != 0)
    refuse("cannot be opened: " + reason() + "; name a folder that can");
  if (!is_own(status)) refuse("belongs to another user; name a folder of your own");
  if ((status.st_mode & 0022) != 0)
    refuse(
        "others may write into it, and what lies in it may be theirs; name another folder, or "
        "chmod 700 this one when you know all that is in it");
  const std::string real = fs::canonical(path_, error).string();
  struct stat again {};
  if (error || ::lstat(real.c_str(), &again) != 0 || again.st_ino != status.st_ino ||
      again.st_dev != status.st_dev)
    refuse("is not the same folder any more; name another one");
  path_ = real;
}

// Checks before any write, so that a folder with other files stays untouched.
void StoreFolder::check_contents() {
  struct stat status {};
  had_database_ = ::fstatat(folder_.get(), kDatabase, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                  (!S_ISREG(status.st_mode) || status.st_size > 0);
  const bool locked = ::faccessat(folder_.get(), kLock, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  if (had_database_ && !locked && !is_stamped(folder_))
    refuse("its jobs.sqlite is of another program; name an empty or a new folder");
  if (had_database_) return;
  for (const std::string& name : names_in(folder_))
    if (name != kLock && name != kDatabase && name != "jobs.sqlite-journal")
      refuse("holds files ('" + name.substr(0, 100) +
             "') and no jobs.sqlite: it is no store; name an empty or a new folder");
}

// If the file exists, the user must own it; access of others is removed.
void StoreFolder::check_file(const char* name) const {
  struct stat status {};
  if (::fstatat(folder_.get(), name, &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  const std::string file = "'" + std::string(name) + "' in it ";
  if (!S_ISREG(status.st_mode))
    refuse(file + "is a symbolic link, or no file; name another folder");
  if (!is_own(status)) refuse(file + "belongs to another user; name another folder");
  if (status.st_nlink > 1) refuse(file + "has a second name elsewhere; name another folder");
  if ((status.st_mode & 0022) != 0)
    refuse(file +
           "may be written by others; name another folder, or chmod 600 it when you know "
           "that it is yours");
  if ((status.st_mode & 0777) != 0600) ::fchmodat(folder_.get(), name, 0600, 0);
}

void StoreFolder::take_lock() {
  check_file(kLock);
  lock_ = Descriptor(
      ::openat(folder_.get(), kLock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!lock_) refuse("cannot be written: " + reason() + "; name a folder that can");
  // Another server that sweeps temporary stores may hold the new lock for a moment.
  int tries = temporary_ ? 100 : 1;
  while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (--tries == 0) refuse("another server has it; name another folder");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (temporary_ && ::pwrite(lock_.get(), kMark, sizeof kMark - 1, 0) != ssize_t(sizeof kMark - 1))
    refuse("cannot be written: " + reason() + "; name a folder elsewhere with --store");
}

// Creates the file here, because SQLite would take the mode from the umask.
void StoreFolder::make_database() const {
  const Descriptor file(::openat(folder_.get(), kDatabase,
                                 O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file && errno != EEXIST) refuse("cannot be written: " + reason());
}

std::string StoreFolder::database() const { return path_ + "/" + kDatabase; }

bool StoreFolder::has_results() const {
  struct stat status {};
  if (::fstatat(folder_.get(), kResults, &status, AT_SYMLINK_NOFOLLOW) != 0) return false;
  const Descriptor results = open_folder(folder_.get(), kResults);
  return !results || !names_in(results).empty();
}

void StoreFolder::open_results() {
  ::fchmod(folder_.get(), 0700);
  if (::mkdirat(folder_.get(), kResults, 0700) != 0 && errno != EEXIST)
    refuse("'results' in it cannot be made: " + reason() + "; make room, or name another folder");
  const Descriptor results = open_folder(folder_.get(), kResults);
  struct stat status {};
  if (!results || ::fstat(results.get(), &status) != 0)
    refuse("'results' in it is a symbolic link, or no folder; name another folder");
  if (!is_own(status)) refuse("'results' in it belongs to another user; name another folder");
  if ((status.st_mode & 0022) != 0)
    refuse(
        "others may write into 'results' in it; name another folder, or chmod 700 that when you "
        "know all that is in it");
  if ((status.st_mode & 0777) == 0700) return;
  for (const std::string& id : names_in(results)) {  // stores of an older version
    const Descriptor folder = is_job_id(id) ? open_folder(results.get(), id) : Descriptor();
    if (!folder) continue;
    for (const std::string& name : names_in(folder)) {
      const Descriptor file(
          is_file_of_job(name)
              ? ::openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
              : -1);
      if (file) ::fchmod(file.get(), 0600);
    }
    ::fchmod(folder.get(), 0700);
  }
  ::fchmod(results.get(), 0700);
}

std::string StoreFolder::make_folder(const std::string& id) const {
  if (!is_job_id(id)) refuse("'" + id.substr(0, 64) + "' is no job");
  const Descriptor results = open_folder(folder_.get(), kResults);
  if (results && ::mkdirat(results.get(), id.c_str(), 0700) != 0 && errno != EEXIST)
    throw Error(ErrorCode::usage, "cannot make '" + path_ + "/results/" + id + "': " + reason() +
                                      "; make room on the disk of --store");
  if (!results || !open_folder(results.get(), id))
    throw Error(ErrorCode::usage, "'" + path_ + "/results' cannot be used: " + reason());
  return path_ + "/" + kResults + "/" + id;
}

int64_t StoreFolder::bytes(const std::string& id, const std::string& name) const {
  if (!is_job_id(id) || !is_result_name(name)) return 0;
  const Descriptor results = open_folder(folder_.get(), kResults);
  const Descriptor folder = open_folder(results.get(), id);
  struct stat status {};
  if (!folder || ::fstatat(folder.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  return S_ISREG(status.st_mode) ? status.st_size : 0;
}

std::string StoreFolder::file(const std::string& id, const std::string& name) const {
  return bytes(id, name) > 0 ? path_ + "/" + kResults + "/" + id + "/" + name : "";
}

void StoreFolder::clear(const std::string& id) const {
  if (!is_job_id(id)) return;
  if (const Descriptor results = open_folder(folder_.get(), kResults)) clear_job(results, id);
}

void StoreFolder::clear_all_but(const std::set<std::string>& job_ids) const {
  const Descriptor results = open_folder(folder_.get(), kResults);
  if (!results) return;
  for (const std::string& name : names_in(results))
    if (is_job_id(name) && !job_ids.contains(name)) clear_job(results, name);
}

}  // namespace tessera::server
