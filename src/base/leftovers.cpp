#include "base/leftovers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace tessera::base {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = ".tessera-", kEnd = ".part";
constexpr size_t kDigits = 16;

bool is_ours(std::string_view name) {
  return name.size() == kBegin.size() + kDigits + kEnd.size() && name.starts_with(kBegin) &&
         name.ends_with(kEnd) &&
         name.substr(kBegin.size(), kDigits).find_first_not_of("0123456789abcdef") ==
             std::string_view::npos;
}

// Checks for a plain file or folder of this user; the lock shows whether the writer lives.
void remove_if_left(const fs::path& path) {
  struct stat before {
  }, now{};
  if (lstat(path.c_str(), &before) != 0 || before.st_uid != geteuid()) return;
  const bool folder = S_ISDIR(before.st_mode);
  if (!folder && !S_ISREG(before.st_mode)) return;
  const int file = open(path.c_str(), (folder ? O_RDONLY | O_DIRECTORY : O_RDWR) | O_CLOEXEC |
                                          O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return;
  const bool same = fstat(file, &now) == 0 && now.st_dev == before.st_dev &&
                    now.st_ino == before.st_ino && flock(file, LOCK_EX | LOCK_NB) == 0;
  std::error_code ignored;
  if (same) fs::remove_all(path, ignored);
  close(file);
}

}  // namespace

std::string name_beside(const std::string& target) {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number)
    number = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(&number)) ^ uint64_t(getpid()) << 40;
  return (fs::path(target).parent_path() / fmt::format("{}{:016x}{}", kBegin, number, kEnd))
      .string();
}

bool hold(int descriptor) {
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
  struct stat info {};
  return fstat(descriptor, &info) != 0 || info.st_nlink > 0;
}

void sweep_leftovers(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator at(folder.empty() ? "." : folder, error), end; !error && at != end;
       at.increment(error))
    if (is_ours(at->path().filename().string())) remove_if_left(at->path());
}

}  // namespace tessera::base
