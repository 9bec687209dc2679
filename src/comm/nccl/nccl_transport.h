#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "comm/nccl/courier.h"
#include "comm/transport.h"
#include "tensor/device_pool.h"

namespace tessera::comm::nccl {

/// Tensors of GPUs by NCCL, all else by the transport of the hosts on which it stands.
///
/// A message with a device tensor is announced at its place in the order of host messages, and its
/// elements go by ncclSend and ncclRecv on the link of (sender, receiver): a communicator of those
/// two and a stream at each end, for this one direction.
///
/// No transfer waits for ever: a transfer waits for (1) the transfers before it on its link, (2)
/// what the sender's compute stream held before the announcement, (3) what the receiver's held when
/// the receive was started; a compute stream waits for transfers only in Pending::wait, after their
/// receive was started, and a host in send(), for transfers announced before. Order transfers by
/// the moment at which their receive is started, work of a compute stream by that at which it was
/// given: every wait is for something earlier, since receives start in the order of the
/// announcements, which is that of the sends. So there is no circle. It holds while the kernels of
/// all links fit on a GPU at once and no host call waits for the device inside NCCL or CUDA:
/// docs/adr/0008.
class NcclTransport : public Transport {
 public:
  NcclTransport(std::shared_ptr<Transport> host, std::chrono::milliseconds deadline,
                const Functions& nccl)
      : host_(std::move(host)), courier_(std::make_shared<Courier>(host_, deadline, nccl)) {
    host_->inbox().guard(courier_);
  }
  /// Waits for the other ranks, unless this one fails.
  ~NcclTransport() override {
    if (std::uncaught_exceptions() == 0 && started_) courier_->close();
    host_->inbox().guard(nullptr);
    courier_->end();
  }
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;

  Courier& courier() { return *courier_; }
  void start() {
    courier_->start();
    started_ = true;
  }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  void send(int to, uint64_t channel, Message message) override {
    if (!tensor::is_gpu(message.data.device()) || to == rank())
      return host_->send(to, channel, std::move(message));
    courier_->send(to, channel, std::move(message));
  }
  void await_room(int to, const std::function<void()>& expired) override {
    host_->await_room(to, expired);
  }
  Inbox& inbox() override { return host_->inbox(); }
  void advance() override { host_->advance(); }
  uint64_t progress(int rank) const override { return host_->progress(rank); }
  void wait_for(int rank) override { host_->wait_for(rank); }
  int waits_for(int rank) const override { return host_->waits_for(rank); }
  void fail_all(const Error& error) override { host_->fail_all(error); }

 private:
  const std::shared_ptr<Transport> host_;
  const std::shared_ptr<Courier> courier_;
  bool started_ = false;
};

}  // namespace tessera::comm::nccl
