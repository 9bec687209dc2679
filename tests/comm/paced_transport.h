#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/communicator.h"
#include "comm/transport_over.h"

namespace tessera::comm {

/// A transport on top of a faster transport: each rank has a link of limited bandwidth, with
/// messages in order.
class PacedTransport : public TransportOver {
 public:
  PacedTransport(std::shared_ptr<Transport> below, double bytes_a_second)
      : TransportOver(std::move(below)), rate_(bytes_a_second), thread_([this] { work(); }) {}
  ~PacedTransport() override {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  PacedTransport(const PacedTransport&) = delete;
  PacedTransport& operator=(const PacedTransport&) = delete;

  void send(int to, uint64_t channel, Message message) override {
    {
      const std::lock_guard lock(mutex_);
      held_.push_back({to, channel, std::move(message)});
    }
    wake_.notify_one();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Held {
    int to;
    uint64_t channel;
    Message message;
  };

  void work() {
    std::unique_lock lock(mutex_);
    Clock::time_point free{};  // time of the link's release
    for (;;) {
      wake_.wait(lock, [&] { return ended_ || !held_.empty(); });
      if (held_.empty()) return;
      Held held = std::move(held_.front());
      held_.pop_front();
      lock.unlock();
      const auto bytes = held.message.data.defined() ? double(held.message.data.bytes()) : 0.0;
      const std::chrono::duration<double> takes(bytes / rate_);
      free = std::max(free, Clock::now()) + std::chrono::duration_cast<Clock::duration>(takes);
      std::this_thread::sleep_until(free);
      TransportOver::send(held.to, held.channel, std::move(held.message));
      lock.lock();
    }
  }

  const double rate_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Held> held_;  // under mutex_
  bool ended_ = false;     // under mutex_
  std::thread thread_;
};

/// The ranks of `world` with such links.
inline std::unique_ptr<Communicator> paced(Communicator& world, double bytes_a_second) {
  return world.over([&](std::shared_ptr<Transport> below, std::chrono::milliseconds) {
    return std::make_shared<PacedTransport>(std::move(below), bytes_a_second);
  });
}

}  // namespace tessera::comm
