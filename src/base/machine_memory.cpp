#include "base/machine_memory.h"

#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace tessera::base {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

// Reads a file with a single number; "max", empty or invalid text means no limit.
int64_t limit_in(const std::string& path) {
  std::ifstream file(path);
  int64_t bytes = 0;
  return file >> bytes && bytes > 0 ? bytes : kNone;
}

// The smallest limit of a group and all its parents.
int64_t limit_upwards(const std::string& root, std::string group, const char* file) {
  int64_t least = limit_in(root + "/" + file);
  while (group.size() > 1) {
    least = std::min(least, limit_in(root + group + "/" + file));
    group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'));
  }
  return least;
}

}  // namespace

int64_t control_group_limit(const std::string& membership, const std::string& root) {
  int64_t least = kNone;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {  // "0::/group" or "4:memory:/group"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      least = std::min(least, limit_upwards(root, group, "memory.max"));
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      least = std::min(least, limit_upwards(root + "/memory", group, "memory.limit_in_bytes"));
    }
  }
  return least;
}

int64_t usable_memory() {
  struct sysinfo info {};
  int64_t least = kNone;
  if (sysinfo(&info) == 0) least = static_cast<int64_t>(info.totalram) * info.mem_unit;
  struct rlimit limit {};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    least = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(least)));
  std::ifstream file("/proc/self/cgroup");
  std::stringstream membership;
  membership << file.rdbuf();
  return std::min(least, control_group_limit(membership.str(), "/sys/fs/cgroup"));
}

}  // namespace tessera::base
