#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "comm/message.h"
#include "tessera/error.h"

namespace tessera::comm {

/// Filters messages before an inbox, on the delivering threads. Thread-safe.
class Gate {
 public:
  virtual ~Gate() = default;
  /// Sees a message before any receiver, and may change or keep it (false). Small messages of one
  /// sender (Transport::send) come in order.
  virtual bool pass(int from, Message& message) = 0;
  /// The inbox fails.
  virtual void failed(const Error& error) = 0;
};

/// Takes messages of a channel without receivers, on the delivering threads: a message of a sender
/// may come before an earlier one (Message::order). A thrown error ends the waits of its rank.
/// Thread-safe.
using Listener = std::function<void(int from, Message message)>;

/// Received messages of a rank, found by number among those of their channel and sender: no message
/// waits for another. Thread-safe.
class Inbox {
 public:
  void deliver(uint64_t channel, int from, Message message);
  /// Announces a later take() or forget() of a message.
  void expect(uint64_t channel, int from, uint64_t order);
  /// True if take() would return at once, with a complete tensor. Throws the failure if there is
  /// one and the message is missing.
  bool ready(uint64_t channel, int from, uint64_t order);
  /// Waits for the message. `expired` is called now and then, and throws after too long a
  /// wait.
  Message take(uint64_t channel, int from, uint64_t order, const std::function<void()>& expired);
  /// Drops an expected message, now or at its arrival.
  void forget(uint64_t channel, int from, uint64_t order);
  /// Makes every later wait throw `error`; the first failure stays.
  void fail(const Error& error);
  /// Throws the failure if there is one.
  void check() const;
  /// Drops present and future messages of a channel; remembers the channel until all `others`
  /// senders have closed their side and nothing is under way.
  void close(uint64_t channel, int others);
  /// Until the channel is closed its messages go to a listener, those that have come among them.
  void listen(uint64_t channel, Listener listener);
  /// Passes all messages, and the failure, through a gate first; null: none.
  void guard(const std::shared_ptr<Gate>& gate);

  /// Total bytes of a sender in expected or dropped messages.
  uint64_t accepted(int from) const;
  /// Bytes of a sender without an expectation yet.
  uint64_t ahead(int from) const;
  /// Waits until those are at most `limit`. `expired` as in take().
  void await_room(int from, uint64_t limit, const std::function<void()>& expired);
  /// Remembered channels.
  size_t channels() const;

 private:
  struct Slot {
    std::optional<Message> message;
    bool expected = false, forgotten = false;
    bool awaited = false;  // a thread waits for the message
    uint64_t bytes = 0;    // received bytes
  };
  struct Sender {
    std::map<uint64_t, Slot> slots;  // by order
    uint64_t arrived = 0;
    std::optional<uint64_t> message_count;  // once the sender closed the channel
  };
  struct Channel {
    std::map<int, Sender> senders;
    int others = -1;  // senders left to close, after the local close
    std::shared_ptr<const Listener> listener;
  };

  Slot* find(uint64_t channel, int from, uint64_t order);
  void erase(uint64_t channel, int from, uint64_t order);
  void let_go(uint64_t channel);
  void give(const Listener& listener, int from, Message message);
  template <class Done>
  void wait(std::unique_lock<std::mutex>& lock, const std::function<void()>& expired, Done done);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Channel> channels_;
  std::map<int, uint64_t> accepted_, received_bytes_;  // bytes by sender
  std::optional<Error> failure_;
  std::shared_ptr<Gate> gate_;
};

}  // namespace tessera::comm
