// Replaces launch.cpp without MPI.
#include "base/fail.h"
#include "comm/mpi/launch.h"

namespace tessera::comm::mpi {

void run(const Options&, const std::function<void(Communicator& world)>&) {
  fail(ErrorCode::plan,
       "this build has no MPI; install libopenmpi-dev and openmpi-bin and build again, or use "
       "ranks of one process (`ranks`)");
}

}  // namespace tessera::comm::mpi
