#include "pipeline/processes.h"

#include <utility>

#include "comm/collectives.h"
#include "kernels/unit.h"

namespace tessera {

Processes::Processes(std::unique_ptr<State> state) : state_(std::move(state)) {}
Processes::~Processes() = default;

int Processes::rank() const { return state_->rank; }
int Processes::ranks() const { return state_->ranks; }
int Processes::on_this_machine() const { return state_->on_this_machine; }

void pipeline::share_unit(comm::Communicator& world) {
  using kernels::Unit;
  const bool dot = world.rank() == 0 && kernels::active_unit() == Unit::dot;
  kernels::take_unit(comm::agreed(world, 0, dot, {"go", -1}) ? Unit::dot : Unit::fma);
}

}  // namespace tessera
