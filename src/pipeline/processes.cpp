#include "pipeline/processes.h"

#include <cstring>
#include <utility>

#include "base/fail.h"
#include "comm/collectives.h"
#include "comm/whereabouts.h"
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

std::vector<uint64_t> pipeline::machines_of(comm::Communicator& world) {
  const uint64_t here = comm::Whereabouts::here().machine;
  const tensor::Tensor mine = tensor::Tensor::empty({8}, tensor::DType::u8);
  std::memcpy(mine.raw(), &here, 8);
  std::vector<uint64_t> machines;
  for (const tensor::Tensor& one : comm::all_gather(world, mine, {"machine", -1}).wait()) {
    require(one.bytes() == 8, ErrorCode::rank, "a rank says in {} bytes where it is; expected 8",
            one.bytes());
    std::memcpy(&machines.emplace_back(), one.raw(), 8);
  }
  return machines;
}

}  // namespace tessera
