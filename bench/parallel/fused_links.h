#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "fused/symmetric_heap.h"

namespace tessera::bench {

using Clock = std::chrono::steady_clock;

inline void sleep(double seconds) {
  if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Simulates a rank's outgoing link: a sleeping thread delays the messages, in order.
class Link {
 public:
  Link() : thread_([this](const std::stop_token& stop) { work(stop); }) {}
  void send(double seconds, std::function<void()> arrives) {
    const std::lock_guard lock(mutex_);
    // A link does not wait for the simulating thread.
    free_ = std::max(free_, Clock::now()) +
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    queue_.push_back({free_, std::move(arrives)});
    came_.notify_one();
  }

 private:
  void work(const std::stop_token& stop) {
    for (;;) {
      std::pair<Clock::time_point, std::function<void()>> next;
      {
        std::unique_lock lock(mutex_);
        if (!came_.wait(lock, stop, [&] { return !queue_.empty(); })) return;
        next = std::move(queue_.front());
        queue_.pop_front();
      }
      std::this_thread::sleep_until(next.first);
      next.second();
    }
  }
  std::mutex mutex_;
  std::condition_variable_any came_;
  Clock::time_point free_{};
  std::deque<std::pair<Clock::time_point, std::function<void()>>> queue_;
  std::jthread thread_;
};

/// Seconds for each byte on a rank's link, in the current layer.
struct ByteCosts {
  double dispatch = 0, combine = 0;
};

/// Bytes of rows between ranks: the total, and the most in flight to a rank at once.
class Traffic {
 public:
  explicit Traffic(int64_t ranks) : now_(size_t(ranks)) {}
  void leaves(int to, int64_t bytes) {
    payload_ += bytes;
    const int64_t now = now_[size_t(to)] += bytes;
    int64_t most = most_;
    while (now > most && !most_.compare_exchange_weak(most, now)) {
    }
  }
  /// Bytes that were counted elsewhere.
  void sent(int64_t bytes) { payload_ += bytes; }
  void arrives(int to, int64_t bytes) { now_[size_t(to)] -= bytes; }
  /// Call only with nothing in flight.
  void count_anew() { payload_ = most_ = 0; }
  int64_t payload() const { return payload_; }
  int64_t most() const { return most_; }

 private:
  std::vector<std::atomic<int64_t>> now_;
  std::atomic<int64_t> payload_{0}, most_{0};
};

/// A heap with row transfers through the rank's link, if any.
class LinkedHeap final : public fused::SymmetricHeap {
 public:
  LinkedHeap(SymmetricHeap& below, const fused::Layout& layout, Traffic& traffic, bool linked)
      : SymmetricHeap(&below.ranks(), below.rank(), below.memory()),
        below_(below),
        layout_(layout),
        traffic_(traffic),
        link_(linked ? std::make_unique<Link>() : nullptr) {}
  ByteCosts costs;

  void put(const fused::Transfer& t) override { below_.put(t); }
  void signal(const fused::Transfer& t) override { below_.signal(t); }
  void put_signal(const fused::Transfer& t) override {
    if (t.bytes == 0) return below_.put_signal(t);
    traffic_.leaves(t.to, t.bytes);
    const auto arrives = [this, t] {
      traffic_.arrives(t.to, t.bytes);
      below_.put_signal(t);
    };
    if (!link_) return arrives();
    const int64_t run = (t.at - layout_.count_region()) / layout_.row_bytes / layout_.run;
    const bool out = run / 2 % 2 == 0;
    link_->send((out ? costs.dispatch : costs.combine) * double(t.bytes), arrives);
  }

 private:
  SymmetricHeap& below_;
  const fused::Layout layout_;
  Traffic& traffic_;
  const std::unique_ptr<Link> link_;
};

/// A transport with row messages through the rank's link.
class LinkedTransport final : public comm::Transport {
 public:
  LinkedTransport(std::shared_ptr<Transport> below, const ByteCosts& costs, Traffic& traffic,
                  bool linked)
      : below_(std::move(below)),
        costs_(costs),
        traffic_(traffic),
        link_(linked ? std::make_unique<Link>() : nullptr) {}
  int rank() const override { return below_->rank(); }
  int size() const override { return below_->size(); }
  void send(int to, uint64_t channel, comm::Message message) override {
    const bool out = std::string_view(message.tag.operation) == "dispatch",
               back = std::string_view(message.tag.operation) == "combine";
    if (to == rank() || !(out || back)) return below_->send(to, channel, std::move(message));
    const int64_t bytes = message.data.bytes();
    traffic_.leaves(to, bytes);
    const auto owned_message = std::make_shared<comm::Message>(std::move(message));
    const auto arrives = [this, to, channel, owned_message, bytes] {
      traffic_.arrives(to, bytes);
      below_->send(to, channel, std::move(*owned_message));
    };
    if (!link_) return arrives();
    link_->send((out ? costs_.dispatch : costs_.combine) * double(bytes), arrives);
  }
  void await_room(int to, const std::function<void()>& expired) override {
    below_->await_room(to, expired);
  }
  comm::Inbox& inbox() override { return below_->inbox(); }
  void advance() override { below_->advance(); }
  uint64_t progress(int rank) const override { return below_->progress(rank); }
  void wait_for(int rank) override { below_->wait_for(rank); }
  int waits_for(int rank) const override { return below_->waits_for(rank); }
  void fail_all(const Error& error) override { below_->fail_all(error); }

 private:
  const std::shared_ptr<Transport> below_;
  const ByteCosts& costs_;
  Traffic& traffic_;
  const std::unique_ptr<Link> link_;
};

}  // namespace tessera::bench
