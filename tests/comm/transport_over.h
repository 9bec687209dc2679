#pragma once

#include <memory>
#include <utility>

#include "comm/transport.h"

namespace tessera::comm {

/// Forwards to another transport all functions without an override.
class TransportOver : public Transport {
 public:
  explicit TransportOver(std::shared_ptr<Transport> below) : below_(std::move(below)) {}
  int rank() const override { return below_->rank(); }
  int size() const override { return below_->size(); }
  void send(int to, uint64_t channel, Message message) override {
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
  const std::shared_ptr<Transport> below_;
};

}  // namespace tessera::comm
