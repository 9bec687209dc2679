#pragma once

#include <chrono>
#include <optional>

namespace tessera::comm::mpi {

/// From now on Open MPI does not end this process in its own way when mpirun is gone, or tells of
/// a process that has died: ranks see that themselves. After MPI's start. Without PMIx, through
/// which mpirun speaks to its processes, it changes nothing.
void outlive_mpirun();
/// Since when mpirun, or its daemon on this host, is gone; nothing while it is there.
std::optional<std::chrono::steady_clock::time_point> orphaned_since();

}  // namespace tessera::comm::mpi
