#include "comm/simulated/launch.h"

#include "comm/threads/launch.h"

namespace tessera::comm::simulated {

void run(const std::vector<tensor::Scope>& scopes, std::chrono::milliseconds deadline,
         const std::function<void(Communicator& world)>& body) {
  threads::run(static_cast<int>(scopes.size()), deadline, [&](Communicator& world) {
    const tensor::BindScope mine(scopes[static_cast<size_t>(world.rank())]);
    body(world);
  });
}

}  // namespace tessera::comm::simulated
