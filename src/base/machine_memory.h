#pragma once

#include <cstdint>
#include <string>

namespace tessera::base {

/// Bytes of memory that this process may use: those of the machine, or fewer where a control group
/// (a container's limit) or a limit on address space says so.
int64_t usable_memory();

/// The smallest memory limit of the control groups that a process is in; INT64_MAX without one.
/// `membership` is the text of /proc/self/cgroup, `root` where the groups are mounted.
int64_t control_group_limit(const std::string& membership, const std::string& root);

}  // namespace tessera::base
