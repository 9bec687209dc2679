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

/// Stands before an inbox, on the threads that deliver. Thread-safe.
class Gate {
 public:
  virtual ~Gate() = default;
  /// Sees a message before anybody can take it, and may change it; false keeps it. Those of one
  /// sender that are small enough (Transport::send) come in their order.
  virtual bool pass(int from, Message& message) = 0;
  /// The inbox fails.
  virtual void failed(const Error& error) = 0;
};

/// Takes messages of a channel where nobody receives them, on the threads that deliver: a message
/// of one sender may come before another that was sent earlier (Message::order). An error that it
/// throws ends the waits of its rank. Thread-safe.
using Listener = std::function<void(int from, Message message)>;

/// Messages that arrived at a rank, each found by its number among those of its channel and sender:
/// none waits for another. Thread-safe.
class Inbox {
 public:
  void deliver(uint64_t channel, int from, Message message);
  /// Says that a message will be taken, or forgotten.
  void expect(uint64_t channel, int from, uint64_t order);
  /// Whether take() would return at once, with a tensor that is there. Throws the failure if there
  /// is one and the message is not there.
  bool ready(uint64_t channel, int from, uint64_t order);
  /// Waits for the message. `expired` is asked now and then, and throws when the wait has lasted
  /// too long.
  Message take(uint64_t channel, int from, uint64_t order, const std::function<void()>& expired);
  /// Drops a message that was expected, now or when it arrives.
  void forget(uint64_t channel, int from, uint64_t order);
  /// From now on every wait throws `error`; the first failure stays.
  void fail(const Error& error);
  /// Throws the failure if there is one.
  void check() const;
  /// Drops what arrived on a channel and all that will; remembers it until each of `others` senders
  /// has closed it too, and nothing of theirs is on the way.
  void close(uint64_t channel, int others);
  /// Until the channel is closed its messages go to a listener, those that have come among them.
  void listen(uint64_t channel, Listener listener);
  /// From now on all messages, and the failure, pass a gate first; null: none.
  void guard(const std::shared_ptr<Gate>& gate);

  /// Bytes that came from a sender in messages that were expected or dropped, in all.
  uint64_t accepted(int from) const;
  /// Bytes that came from a sender and that nobody expects yet.
  uint64_t ahead(int from) const;
  /// Waits until those are at most `limit`. `expired` as in take().
  void await_room(int from, uint64_t limit, const std::function<void()>& expired);
  /// Channels that are remembered.
  size_t channels() const;

 private:
  struct Slot {
    std::optional<Message> message;
    bool expected = false, forgotten = false;
    uint64_t bytes = 0;  // of what arrived
  };
  struct Sender {
    std::map<uint64_t, Slot> slots;  // by order
    uint64_t arrived = 0;
    std::optional<uint64_t> all;  // messages, once the sender has closed the channel
  };
  struct Channel {
    std::map<int, Sender> senders;
    int others = -1;  // to close it, once it is closed here
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
  std::map<int, uint64_t> accepted_, came_;  // bytes by sender
  std::optional<Error> failure_;
  std::shared_ptr<Gate> gate_;
};

}  // namespace tessera::comm
