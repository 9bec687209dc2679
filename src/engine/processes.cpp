#include "tessera/processes.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "comm/mpi/launch.h"

namespace tessera {
namespace {

int ranks_here(int ranks) {
  const char* text = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  int here = 1;
  if (text != nullptr) std::from_chars(text, text + std::string_view(text).size(), here);
  return here >= 1 && here <= ranks ? here : 1;
}

}  // namespace

bool started_by_mpirun() { return comm::mpi::launched(); }

void run_processes(const ProcessOptions& options, const std::function<void(Processes&)>& body) {
  comm::mpi::Options mpi;
  mpi.deadline = options.comm_timeout;
  mpi.report = options.report;
  mpi.give_up = options.give_up;
  comm::mpi::run(mpi, [&](comm::Communicator& world) {
    Processes processes{world.rank(), world.size(), ranks_here(world.size()), &world};
    body(processes);
  });
}

}  // namespace tessera
