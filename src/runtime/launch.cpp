#include "runtime/launch.h"

namespace tessera::runtime {

void launch_ranks(const ModelState& state, const RunMeters& meters, const std::stop_token& stop,
                  const std::function<void(comm::Communicator* world)>& rank) {
  state.ranks().run([&](int r) { return state.workers.scope(r, &meters); }, stop, rank);
}

}  // namespace tessera::runtime
