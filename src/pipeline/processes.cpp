#include "pipeline/processes.h"

#include <utility>

namespace tessera {

Processes::Processes(std::unique_ptr<State> state) : state_(std::move(state)) {}
Processes::~Processes() = default;

int Processes::rank() const { return state_->rank; }
int Processes::ranks() const { return state_->ranks; }
int Processes::on_this_machine() const { return state_->on_this_machine; }

}  // namespace tessera
