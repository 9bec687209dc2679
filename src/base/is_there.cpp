#include "base/is_there.h"

#include <sys/stat.h>

#include <cerrno>

namespace tessera::base {

bool is_there(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

}  // namespace tessera::base
