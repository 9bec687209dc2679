#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "cluster/processes.h"
#include "comm/threads/launch.h"

namespace tessera {

/// Ranks as threads in the role of processes. `factory`: a transport on top of theirs.
inline void on_processes(int ranks, const std::function<void(const Processes&)>& body,
                         const comm::Communicator::TransportFactory& factory = {}) {
  comm::threads::run(ranks, std::chrono::seconds(60), [&](comm::Communicator& threads) {
    const auto over = factory ? threads.over(factory) : nullptr;
    comm::Communicator& world = over ? *over : threads;
    auto state = std::make_unique<Processes::State>();
    state->rank = state->index_here = world.rank();
    state->ranks = state->on_this_machine = world.size();
    state->world = &world;
    body(Processes(std::move(state)));
  });
}

}  // namespace tessera
