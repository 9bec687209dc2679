#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>

#include "comm/message.h"
#include "tessera/error.h"

namespace tessera::comm {

/// Stands before an inbox, on the threads that deliver. Thread-safe.
class Gate {
 public:
  virtual ~Gate() = default;
  /// Sees a message before anybody can take it, and may change it; false keeps it. Those of one
  /// sender come in their order.
  virtual bool pass(int from, Message& message) = 0;
  /// The inbox fails.
  virtual void failed(const Error& error) = 0;
};

/// Messages that arrived at a rank, in order for each (channel, sender). Thread-safe.
class Inbox {
 public:
  void deliver(uint64_t channel, int from, Message message);
  /// The oldest message of the sender if one is there. Throws the failure if there is one.
  std::optional<Message> poll(uint64_t channel, int from);
  /// Waits for it. `expired` is asked now and then, and throws when the wait has lasted too long.
  Message take(uint64_t channel, int from, const std::function<void()>& expired);
  /// From now on every wait throws `error`; the first failure stays.
  void fail(const Error& error);
  /// Drops what arrived on a channel and all that will.
  void close(uint64_t channel);
  /// From now on all messages, and the failure, pass a gate first; null: none.
  void guard(const std::shared_ptr<Gate>& gate);

 private:
  std::optional<Message> pop(uint64_t channel, int from);
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<uint64_t, int>, std::deque<Message>> queues_;
  std::map<uint64_t, bool> closed_;
  std::optional<Error> failure_;
  std::shared_ptr<Gate> gate_;
};

}  // namespace tessera::comm
