#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <utility>

#include "comm/nccl/transfer_queue.h"
#include "comm/transport.h"
#include "tensor/device_pool.h"

namespace tessera::comm::nccl {

/// Sends tensors of GPUs by NCCL, and everything else by the hosts' transport below.
///
/// A message with a device tensor is announced at its place in the order of host messages. The
/// elements go by ncclSend and ncclRecv on the link of (sender, receiver): a communicator of both
/// and a stream at each end, for a single direction.
///
/// No transfer waits for ever. A transfer waits for (1) earlier transfers on its link, (2) work in
/// the sender's compute stream before the announcement, (3) work in the receiver's compute stream
/// before the start of the receive. A compute stream waits for transfers only in Pending::wait,
/// after the start of their receive, and a host in send(), for earlier announced transfers. Order
/// transfers by the start of their receive, and work of a compute stream by its submission: every
/// wait is then for an earlier event, because receives start in the order of announcements, the
/// order of the sends. So no circle exists, as long as the kernels of all links fit on a GPU at
/// once and no host call waits for the device inside NCCL or CUDA:
/// docs/adr/0008.
class NcclTransport : public Transport {
 public:
  NcclTransport(std::shared_ptr<Transport> host, std::chrono::milliseconds deadline,
                const Functions& nccl)
      : host_(std::move(host)), transfers_(std::make_shared<TransferQueue>(host_, deadline, nccl)) {
    host_->inbox().guard(transfers_);
  }
  /// Waits for the other ranks, unless this rank fails.
  ~NcclTransport() override {
    if (std::uncaught_exceptions() == 0 && started_) transfers_->close();
    host_->inbox().guard(nullptr);
    transfers_->end();
  }
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;

  TransferQueue& transfer_queue() { return *transfers_; }
  void start() {
    transfers_->start();
    started_ = true;
  }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  void send(int to, uint64_t channel, Message message) override {
    if (!tensor::is_gpu(message.data.device()) || to == rank())
      return host_->send(to, channel, std::move(message));
    transfers_->send(to, channel, std::move(message));
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
  const std::shared_ptr<TransferQueue> transfers_;
  bool started_ = false;
};

}  // namespace tessera::comm::nccl
