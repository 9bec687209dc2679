#include "cluster/processes.h"

#include <cstring>
#include <utility>

#include "comm/collectives.h"

namespace tessera {

Processes::Processes(std::unique_ptr<State> state) : state_(std::move(state)) {}
Processes::~Processes() = default;

int Processes::rank() const { return state_->rank; }
int Processes::ranks() const { return state_->ranks; }
int Processes::on_this_machine() const { return state_->on_this_machine; }

std::string Processes::share(const std::string& text) const {
  tensor::Tensor message =
      tensor::Tensor::empty({static_cast<int64_t>(text.size())}, tensor::DType::u8);
  std::memcpy(message.raw(), text.data(), text.size());
  message = comm::broadcast(*state_->world, 0, message, {"share", -1});
  return {static_cast<const char*>(message.raw()), static_cast<size_t>(message.bytes())};
}

}  // namespace tessera
