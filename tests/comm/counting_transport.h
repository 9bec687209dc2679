#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/transport_over.h"

namespace tessera::comm {

/// A transport on top of another, counting bytes to each rank.
class CountingTransport : public TransportOver {
 public:
  CountingTransport(std::shared_ptr<Transport> below, std::vector<int64_t>& bytes)
      : TransportOver(std::move(below)), bytes_(bytes) {
    bytes_.assign(static_cast<size_t>(TransportOver::size()), 0);
  }
  void send(int to, uint64_t channel, Message message) override {
    if (message.data.defined()) bytes_[static_cast<size_t>(to)] += message.data.bytes();
    TransportOver::send(to, channel, std::move(message));
  }

 private:
  std::vector<int64_t>& bytes_;
};

/// The ranks of `world`; `bytes` receives the bytes sent to each rank, and must outlive them.
inline std::unique_ptr<Communicator> counting(Communicator& world, std::vector<int64_t>& bytes) {
  return world.over([&](std::shared_ptr<Transport> below, std::chrono::milliseconds) {
    return std::make_shared<CountingTransport>(std::move(below), bytes);
  });
}

}  // namespace tessera::comm
