#pragma once

#include <chrono>
#include <optional>

namespace tessera::comm::mpi {

/// Stops Open MPI from ending this process when mpirun is gone or another process has died: ranks
/// detect both themselves. After MPI's start. Has no effect without PMIx, mpirun's connection to
/// its processes.
void outlive_mpirun();
/// The time of the loss of mpirun, or of its daemon on this host; nothing before.
std::optional<std::chrono::steady_clock::time_point> orphaned_since();

}  // namespace tessera::comm::mpi
