#include "comm/nccl/transfer_queue.h"

#include <algorithm>
#include <future>
#include <utility>

#include "base/fail.h"
#include "tensor/device_pool.h"
#include "tensor/scope.h"

namespace tessera::comm::nccl {

using namespace std::chrono_literals;
using tensor::Tensor;

namespace {

std::shared_ptr<tensor::DeviceRuntime> runtime_in_use() {
  auto pool = tensor::device_pool();
  auto* const runtime = &pool->runtime();
  return {std::move(pool), runtime};
}

}  // namespace

/// For waits for arrivals.
struct TransferQueue::ArrivalSignal {
  std::shared_ptr<tensor::DeviceRuntime> runtime;
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Error> failure;  // under mutex
};

class TransferQueue::PendingArrival : public Arrival {
 public:
  explicit PendingArrival(std::shared_ptr<ArrivalSignal> signal) : signal_(std::move(signal)) {}
  void complete(Tensor data, std::shared_ptr<void> done) {
    {
      const std::lock_guard lock(signal_->mutex);
      data_ = std::move(data);
      done_ = std::move(done);
    }
    signal_->changed.notify_all();
  }
  bool ready() override {
    const std::lock_guard lock(signal_->mutex);
    return data_.defined() || signal_->failure;
  }
  Tensor wait(const std::function<void()>& expired) override {
    std::unique_lock lock(signal_->mutex);
    while (!data_.defined()) {
      if (signal_->failure) throw Error(*signal_->failure);
      if (signal_->changed.wait_for(lock, 20ms) == std::cv_status::timeout) {
        lock.unlock();
        expired();
        lock.lock();
      }
    }
    Tensor data = std::move(data_);
    const auto done = std::move(done_);
    lock.unlock();
    if (done) {
      signal_->runtime->enter();
      signal_->runtime->wait(tensor::current_scope().stream, done.get());
    }
    return data;
  }

 private:
  const std::shared_ptr<ArrivalSignal> signal_;
  Tensor data_;                 // under the signal's mutex
  std::shared_ptr<void> done_;  // under the signal's mutex; null: nothing to move
};

TransferQueue::TransferQueue(std::shared_ptr<Transport> host, std::chrono::milliseconds deadline,
                             const Functions& nccl)
    : host_(std::move(host)),
      deadline_(deadline),
      nccl_(nccl),
      runtime_(runtime_in_use()),
      compute_(tensor::current_scope().stream),
      links_(static_cast<size_t>(host_->size()) * static_cast<size_t>(host_->size())),
      signal_(std::make_shared<ArrivalSignal>()),
      under_way_(static_cast<size_t>(host_->size())) {
  signal_->runtime = runtime_;
}

TransferQueue::~TransferQueue() { end(); }

std::shared_ptr<Link>& TransferQueue::link(int from, int to) {
  return links_[static_cast<size_t>(from) * static_cast<size_t>(host_->size()) +
                static_cast<size_t>(to)];
}

void TransferQueue::open(int from, int to, const UniqueId& id) {
  const bool out = from == host_->rank();
  auto& new_link = link(from, to);
  new_link = std::make_shared<Link>(nccl_, runtime_, out ? to : from,
                                    out ? Link::Way::out : Link::Way::in, deadline_);
  new_link->open(id);
}

void TransferQueue::start() {
  thread_ = std::thread([this] { work(); });
}

void TransferQueue::queue(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (broken_) return;
    jobs_.push_back(std::move(job));
    if (!std::exchange(busy_, true)) runtime_->spare(kSpared);
  }
  wake_.notify_one();
}

void TransferQueue::send(int to, uint64_t channel, Message message) {
  runtime_->enter();
  // Before the announcement: actions of others upon the announcement must follow this event.
  auto ready = runtime_->record(tensor::current_scope().stream);
  host_->send(to, channel, describe(message));
  if (message.data.bytes() == 0) return;
  {
    std::unique_lock lock(mutex_);
    int& count = under_way_[static_cast<size_t>(to)];
    room_.wait(lock, [&] { return broken_ || count < kMostUnderWay; });
    ++count;
  }
  queue({to, std::move(message.data), std::move(ready)});
}

bool TransferQueue::pass(int from, Message& message) {
  if (!ours(message)) return true;
  if (is_farewell(message)) {
    {
      const std::lock_guard lock(mutex_);
      ++farewells_;
    }
    idle_.notify_all();
    return false;
  }
  const Parcel parcel = read_parcel(message);
  const auto arrival = std::make_shared<PendingArrival>(signal_);
  message.tag = parcel.tag;
  message.data = {};
  message.arrival = arrival;
  queue({from, {}, nullptr, arrival, parcel});
  return true;
}

void TransferQueue::failed(const Error& error) {
  {
    const std::lock_guard lock(signal_->mutex);
    if (!signal_->failure) signal_->failure = error;
  }
  signal_->changed.notify_all();
  {
    const std::lock_guard lock(mutex_);
    broken_ = true;
  }
  wake_.notify_one();
  idle_.notify_all();
  room_.notify_all();
}

void TransferQueue::close() {
  // First: no more sends. Then: nothing under way, so links may close at both ends.
  for (int farewells = 1; farewells <= 2; ++farewells) {
    for (int peer = 0; peer < host_->size(); ++peer)
      if (peer != host_->rank()) host_->send(peer, 0, farewell(farewells));
    const int expected = farewells * (host_->size() - 1);
    std::unique_lock lock(mutex_);  // the host transport detects a rank without arrival
    idle_.wait(lock, [&] { return broken_ || (farewells_ >= expected && !busy_); });
  }
}

void TransferQueue::end() {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable())
    thread_.join();
  else
    cut();
  links_.clear();
}

void TransferQueue::work() {
  tensor::Scope scope;
  scope.stream = compute_;
  const tensor::BindScope bound(scope);
  bool aborted = false;
  std::unique_lock lock(mutex_);
  while (!ended_) {
    wake_.wait_for(lock, busy_ ? 200us : 100ms,
                   [&] { return ended_ || !jobs_.empty() || (broken_ && !aborted); });
    auto jobs = std::exchange(jobs_, {});
    const bool broken = broken_;
    lock.unlock();
    if (broken && !std::exchange(aborted, true)) cut();
    if (!broken) serve(jobs);
    std::vector<int> sent_counts(under_way_.size());
    const bool under_way = settle(sent_counts);
    jobs.clear();
    lock.lock();
    for (size_t peer = 0; peer < sent_counts.size(); ++peer) under_way_[peer] -= sent_counts[peer];
    room_.notify_all();
    const bool was_busy = std::exchange(busy_, under_way || !jobs_.empty());
    if (was_busy && !busy_) runtime_->spare(0);
    if (!busy_) idle_.notify_all();
  }
  lock.unlock();
  runtime_->spare(0);
  cut();
}

void TransferQueue::serve(std::deque<Job>& jobs) {
  try {
    runtime_->enter();
    for (; !jobs.empty(); jobs.pop_front()) start(jobs.front());
    if (Link::Clock::now() - looked_ > 100ms) look();
  } catch (const Error& error) {
    failed(error);
    host_->fail_all(error);
  } catch (const std::exception& error) {
    failed(Error(ErrorCode::rank, error.what()));
    host_->fail_all(Error(ErrorCode::rank, error.what()));
  }
}

void TransferQueue::start(Job& job) {
  const int own_rank = host_->rank();
  Tensor data = job.data;
  if (job.arrival)
    data = Tensor::empty(job.parcel.shape, job.parcel.dtype, tensor::Device::cuda,
                         tensor::MemoryClass::buffers);
  // A block's earlier users precede this event; the link keeps the block until the transfer's end.
  const auto ready = job.arrival ? runtime_->record(compute_) : job.ready;
  std::shared_ptr<void> done;
  if (data.bytes() > 0) {
    const auto& way = job.arrival ? link(job.peer, own_rank) : link(own_rank, job.peer);
    require(way != nullptr, ErrorCode::rank, "there is no link with rank {}", job.peer);
    done = way->move(data, ready);
  }
  if (job.arrival) job.arrival->complete(std::move(data), std::move(done));
}

void TransferQueue::look() {
  looked_ = Link::Clock::now();
  uint64_t progress = 0;  // for the whole world, as in Patience
  for (int rank = 0; rank < host_->size(); ++rank) progress += host_->progress(rank);
  for (int from = 0; from < host_->size(); ++from)
    for (int to = 0; to < host_->size(); ++to)
      if (auto& entry = link(from, to)) entry->look(progress);
}

bool TransferQueue::settle(std::vector<int>& sent_counts) {
  bool under_way = false;
  try {
    for (int from = 0; from < host_->size(); ++from)
      for (int to = 0; to < host_->size(); ++to) {
        const auto& entry = link(from, to);
        if (!entry) continue;
        const int ended = entry->settle();
        if (from == host_->rank()) sent_counts[static_cast<size_t>(to)] += ended;
        under_way = under_way || entry->busy();
      }
  } catch (const Error& error) {  // the device failed
    failed(error);
    host_->fail_all(error);
  }
  return under_way;
}

void TransferQueue::cut() {
  std::vector<void*> comms;
  for (auto& entry : links_)
    if (void* const comm = entry ? entry->release() : nullptr) comms.push_back(comm);
  if (comms.empty()) return;
  // All at once: an abort waits for its link's kernel, which may wait for room held by a kernel of
  // another link. On a thread with shared links: a hanging abort never ends.
  std::packaged_task<void()> aborts([nccl = nccl_, runtime = runtime_, links = links_, comms] {
    runtime->enter();
    nccl.group_start();
    for (void* const comm : comms) nccl.break_off(comm);
    nccl.group_end();
  });
  const auto ended = aborts.get_future();
  std::thread thread(std::move(aborts));
  if (ended.wait_for(deadline_) == std::future_status::ready) return thread.join();
  thread.detach();
  std::fill(links_.begin(), links_.end(), nullptr);
}

}  // namespace tessera::comm::nccl
