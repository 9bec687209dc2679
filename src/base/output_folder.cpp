#include "base/output_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/descriptor.h"
#include "base/fail.h"
#include "base/leftovers.h"
#include "base/output_file.h"

namespace tessera::base {

namespace fs = std::filesystem;

OutputFolder::OutputFolder(const std::string& path) : path_(path) {
  fs::path target = fs::path(path).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // "folder/"
  path_ = target.string();
  struct stat info {};
  require(lstat(path_.c_str(), &info) != 0, ErrorCode::usage,
          "'{}' exists already; name a folder that does not, or remove it", path);
  if (errno != ENOENT) refuse_output("make", path, errno);
  sweep_leftovers(target.parent_path().string());
  make_beside();
}

void OutputFolder::make_beside() {
  for (bool locked = false; !locked;) {
    if (held_ >= 0) close(std::exchange(held_, -1));
    beside_ = name_beside(path_);
    if (mkdir(beside_.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      const int reason = errno;
      beside_.clear();
      refuse_output("make", path_, reason);
    }
    held_ = above_streams(open(beside_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    locked = held_ < 0 || hold(held_);  // without a lock no sweep can happen
  }
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  if (!beside_.empty()) fs::remove_all(beside_, ignored);
  if (held_ >= 0) close(held_);
}

void OutputFolder::commit() {
  // A plain rename would replace an empty folder created meanwhile.
  int status = renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
  if (status != 0 && (errno == EINVAL || errno == ENOSYS))  // without support of the flag
    status = std::rename(beside_.c_str(), path_.c_str());
  if (status != 0) refuse_output("put in place", path_, errno);
  beside_.clear();
}

}  // namespace tessera::base
