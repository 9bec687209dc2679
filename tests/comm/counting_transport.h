#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace tessera::comm {

/// A transport that counts the bytes to each rank, over another one.
class CountingTransport : public Transport {
 public:
  CountingTransport(std::shared_ptr<Transport> below, std::vector<int64_t>& bytes)
      : below_(std::move(below)), bytes_(bytes) {
    bytes_.assign(static_cast<size_t>(below_->size()), 0);
  }
  int rank() const override { return below_->rank(); }
  int size() const override { return below_->size(); }
  void send(int to, uint64_t channel, Message message) override {
    if (message.data.defined()) bytes_[static_cast<size_t>(to)] += message.data.bytes();
    below_->send(to, channel, std::move(message));
  }
  void await_room(int to, const std::function<void()>& expired) override {
    below_->await_room(to, expired);
  }
  Inbox& inbox() override { return below_->inbox(); }
  void advance() override { below_->advance(); }
  uint64_t progress(int rank) const override { return below_->progress(rank); }
  void wait_for(int rank) override { below_->wait_for(rank); }
  int waits_for(int rank) const override { return below_->waits_for(rank); }
  void fail_all(const Error& error) override { below_->fail_all(error); }

 private:
  std::shared_ptr<Transport> below_;
  std::vector<int64_t>& bytes_;
};

/// The ranks of `world`; `bytes` gets what this rank sends to each, and must outlive them.
inline std::unique_ptr<Communicator> counting(Communicator& world, std::vector<int64_t>& bytes) {
  return world.over([&](std::shared_ptr<Transport> below, std::chrono::milliseconds) {
    return std::make_shared<CountingTransport>(std::move(below), bytes);
  });
}

}  // namespace tessera::comm
