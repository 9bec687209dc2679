#include "comm/nccl/link.h"

#include <thread>
#include <utility>

#include "base/fail.h"
#include "tensor/scope.h"

namespace tessera::comm::nccl {

using namespace std::chrono_literals;

namespace {

constexpr int kBytes = 0;  // ncclInt8
constexpr int kSender = 0, kReceiver = 1;

}  // namespace

Link::Link(const Functions& nccl, std::shared_ptr<tensor::DeviceRuntime> runtime, int peer, Way way,
           std::chrono::milliseconds deadline)
    : nccl_(nccl),
      runtime_(std::move(runtime)),
      peer_(peer),
      way_(way),
      deadline_(deadline),
      stream_(runtime_->make_stream()) {}

Link::~Link() {
  cut();
  try {
    runtime_->synchronise(stream_.get());  // nothing writes into returned memory
  } catch (...) {
    return;  // a failed device writes no more
  }
}

void Link::finish(int result, const char* call) {
  const auto until = Clock::now() + deadline_;
  while (result == kInProgress) {
    require(
        Clock::now() < until, ErrorCode::rank,
        "{} with rank {} has not ended for {:.1f} s; is that rank there? Raise `comm_timeout` if "
        "its GPU starts slowly",
        call, peer_, std::chrono::duration<double>(deadline_).count());
    std::this_thread::sleep_for(50us);
    check(nccl_, nccl_.async_error(comm_, &result), "ncclCommGetAsyncError", peer_);
  }
  check(nccl_, result, call, peer_);
}

void Link::open(const UniqueId& id) {
  Config config;
  finish(nccl_.init_rank(&comm_, 2, id, way_ == Way::out ? kSender : kReceiver, &config),
         "ncclCommInitRankConfig");
  const auto byte = tensor::Tensor::zeros({1}, tensor::DType::u8, tensor::Device::cuda,
                                          tensor::MemoryClass::buffers);
  move(byte, runtime_->record(tensor::current_scope().stream));
  for (settle(); busy(); settle()) {
    look(0);
    std::this_thread::sleep_for(100us);
  }
}

std::shared_ptr<void> Link::move(tensor::Tensor data, const std::shared_ptr<void>& ready) {
  require(comm_ != nullptr, ErrorCode::rank, "the link with rank {} is not open", peer_);
  if (moving_.empty()) since_ = Clock::now();
  runtime_->wait(stream_.get(), ready.get());
  const auto bytes = static_cast<size_t>(data.bytes());
  if (way_ == Way::out)
    finish(nccl_.send(data.raw(), bytes, kBytes, kReceiver, comm_, stream_.get()), "ncclSend");
  else
    finish(nccl_.receive(data.raw(), bytes, kBytes, kSender, comm_, stream_.get()), "ncclRecv");
  auto done = runtime_->record(stream_.get());
  moving_.push_back({std::move(data), done});
  return done;
}

int Link::settle() {
  int ended = 0;
  for (; busy() && runtime_->done(moving_.front().done.get()); ++ended) moving_.pop_front();
  moved_ += static_cast<uint64_t>(ended);
  return ended;
}

void Link::look(uint64_t progress) {
  if (!comm_) return;
  int result = 0;
  check(nccl_, nccl_.async_error(comm_, &result), "ncclCommGetAsyncError", peer_);
  check(nccl_, result == kInProgress ? 0 : result, "a transfer", peer_);
  const std::pair<uint64_t, uint64_t> now{progress, moved_};
  if (moving_.empty() || now != last_progress_) {
    last_progress_ = now;
    since_ = Clock::now();
  }
  require(Clock::now() - since_ < deadline_, ErrorCode::rank,
          "a transfer between GPUs, {} rank {}, has not ended for {:.1f} s; see nvidia-smi on both "
          "machines, or raise `comm_timeout`",
          way_ == Way::out ? "to" : "from", peer_,
          std::chrono::duration<double>(deadline_).count());
}

void Link::cut() {
  if (void* const comm = release()) nccl_.break_off(comm);
}

}  // namespace tessera::comm::nccl
