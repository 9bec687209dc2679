#include "comm/simulated/launch.h"

#include "comm/threads/launch.h"
#include "tensor/run_watcher.h"

namespace tessera::comm::simulated {

void run(const std::vector<tensor::Scope>& scopes, std::chrono::milliseconds deadline,
         const std::function<void(Communicator& world)>& body) {
  tensor::RunWatcher* const watcher = tensor::run_watcher();
  threads::run(static_cast<int>(scopes.size()), deadline, [&](Communicator& world) {
    const tensor::BindScope scope_binding(scopes[static_cast<size_t>(world.rank())]);
    const tensor::BindRunWatcher watched(watcher ? watcher->of_rank(world.rank()) : nullptr);
    body(world);
  });
}

}  // namespace tessera::comm::simulated
