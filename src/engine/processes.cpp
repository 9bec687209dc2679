#include "tessera/processes.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "cluster/processes.h"
#include "comm/mpi/launch.h"
#include "comm/nccl/library.h"
#include "runtime/device.h"

namespace tessera {
namespace {

// A number from mpirun's environment, or the least for a missing or invalid number.
int environment_number(const char* name, int least, int most) {
  const char* text = std::getenv(name);
  int value = least;
  if (text != nullptr) std::from_chars(text, text + std::string_view(text).size(), value);
  return value >= least && value <= most ? value : least;
}

}  // namespace

bool started_by_mpirun() { return comm::mpi::launched(); }

void run_processes(const ProcessOptions& options,
                   const std::function<void(const Processes&)>& body) {
  require(options.comm_timeout.count() > 0, ErrorCode::usage,
          "comm_timeout of {} ms: expected a time above 0", options.comm_timeout.count());
  comm::nccl::prepare_environment(
      environment_number("OMPI_COMM_WORLD_SIZE", 1, 65536));  // no threads yet
  const int local_ranks =
      environment_number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, 65536);  // before MPI changes the value
  const int index = environment_number("OMPI_COMM_WORLD_LOCAL_RANK", 0, 65535);
  comm::mpi::Options mpi;
  mpi.deadline = options.comm_timeout;
  mpi.report = options.report;
  mpi.give_up = options.give_up;
  mpi.ending = options.ending;
  comm::mpi::run(mpi, [&](comm::Communicator& world) {
    runtime::share_bf16_path(world);
    const int near = local_ranks <= world.size() ? local_ranks : 1;
    auto state = std::make_unique<Processes::State>();
    state->rank = world.rank();
    state->ranks = world.size();
    state->on_this_machine = near;
    state->world = &world;
    state->index_here = index < near ? index : 0;
    body(Processes(std::move(state)));
  });
}

}  // namespace tessera
