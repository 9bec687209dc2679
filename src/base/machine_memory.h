#pragma once

#include <cstdint>
#include <string>

namespace tessera::base {

/// Bytes of memory available to this process: the machine's, or fewer under a control group (a
/// container's limit) or a limit on address space.
int64_t usable_memory();

/// The smallest memory limit of a process's control groups; INT64_MAX without a limit. `membership`
/// is the text of /proc/self/cgroup, `root` the mount point of the groups.
int64_t control_group_limit(const std::string& membership, const std::string& root);

}  // namespace tessera::base
