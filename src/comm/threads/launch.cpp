#include "comm/threads/launch.h"

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "tensor/work_count.h"

namespace tessera::comm::threads {
namespace {

/// The shared state of a process's ranks.
struct Hub {
  explicit Hub(int ranks)
      : inboxes(static_cast<size_t>(ranks)),
        counts(static_cast<size_t>(ranks)),
        waits(static_cast<size_t>(ranks)) {
    for (auto& peer : waits) peer = -1;
  }
  std::vector<Inbox> inboxes;
  std::vector<tensor::WorkCount> counts;
  std::vector<std::atomic<int>> waits;  // the peer of each rank's wait, or -1
  // The count of the rank around these ranks, if a callback started them.
  tensor::WorkCount* const outer = tensor::work_count();
  std::mutex mutex;
  std::exception_ptr first;  // under mutex

  void fail(std::exception_ptr exception, const Error& error) {
    {
      const std::lock_guard lock(mutex);
      if (!first) first = std::move(exception);
    }
    for (Inbox& inbox : inboxes) inbox.fail(error);
  }
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hub_->inboxes.size()); }
  void send(int to, uint64_t channel, Message message) override {
    hub_->inboxes[static_cast<size_t>(to)].deliver(channel, rank_, std::move(message));
  }
  void await_room(int to, const std::function<void()>& expired) override {
    if (to != rank_) hub_->inboxes[static_cast<size_t>(to)].await_room(rank_, kMostAhead, expired);
  }
  Inbox& inbox() override { return hub_->inboxes[static_cast<size_t>(rank_)]; }
  void advance() override {
    ++hub_->counts[static_cast<size_t>(rank_)];
    if (hub_->outer) ++*hub_->outer;
  }
  uint64_t progress(int rank) const override { return hub_->counts[static_cast<size_t>(rank)]; }
  void wait_for(int rank) override { hub_->waits[static_cast<size_t>(rank_)] = rank; }
  int waits_for(int rank) const override { return hub_->waits[static_cast<size_t>(rank)]; }
  void fail_all(const Error& error) override { hub_->fail(std::make_exception_ptr(error), error); }

 private:
  std::shared_ptr<Hub> hub_;
  int rank_;
};

void run_rank(const std::shared_ptr<Hub>& hub, int rank, std::chrono::milliseconds deadline,
              const std::function<void(Communicator&)>& body) {
  const tensor::BindWorkCount counted(&hub->counts[static_cast<size_t>(rank)]);
  try {
    const auto world = Communicator::world(std::make_shared<ThreadTransport>(hub, rank), deadline);
    body(*world);
  } catch (const Error& error) {
    hub->fail(std::current_exception(), error);
  } catch (const std::exception& error) {
    hub->fail(std::current_exception(),
              Error(ErrorCode::rank, fmt::format("rank {} failed: {}", rank, error.what())));
  } catch (...) {  // a caller's callback may throw anything
    hub->fail(std::current_exception(),
              Error(ErrorCode::rank, fmt::format("rank {} failed: it threw what is no "
                                                 "std::exception",
                                                 rank)));
  }
}

}  // namespace

void run(int ranks, std::chrono::milliseconds deadline,
         const std::function<void(Communicator& world)>& body) {
  require(ranks >= 1 && ranks <= 1024, ErrorCode::plan, "{} ranks: expected 1 to 1024", ranks);
  const auto hub = std::make_shared<Hub>(ranks);
  {
    std::vector<std::jthread> others;
    try {
      for (int rank = 1; rank < ranks; ++rank)
        others.emplace_back([&, rank] { run_rank(hub, rank, deadline, body); });
      run_rank(hub, 0, deadline, body);
    } catch (const std::exception& error) {  // a thread could not start
      hub->fail(std::current_exception(), Error(ErrorCode::rank, error.what()));
    }
  }
  if (hub->first) std::rethrow_exception(hub->first);
}

}  // namespace tessera::comm::threads
