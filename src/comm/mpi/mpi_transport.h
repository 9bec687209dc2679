#pragma once

#include <memory>
#include <utility>

#include "comm/mpi/progress.h"
#include "comm/transport.h"

namespace tessera::comm::mpi {

/// A rank's side of Progress.
class MpiTransport : public Transport {
 public:
  explicit MpiTransport(std::shared_ptr<Progress> progress) : progress_(std::move(progress)) {}
  int rank() const override { return progress_->rank(); }
  int size() const override { return progress_->ranks(); }
  void send(int to, uint64_t channel, Message message) override {
    progress_->send(to, channel, std::move(message));
  }
  void await_room(int to, const std::function<void()>& expired) override {
    progress_->await_room(to, kMostAhead, expired);
  }
  Inbox& inbox() override { return progress_->inbox(); }
  void advance() override { progress_->advance(); }
  uint64_t progress(int rank) const override { return progress_->progress(rank); }
  void wait_for(int rank) override { progress_->wait_for(rank); }
  int waits_for(int rank) const override { return progress_->waits_for(rank); }
  void fail_all(const Error& error) override { progress_->fail(error); }

 private:
  std::shared_ptr<Progress> progress_;
};

}  // namespace tessera::comm::mpi
