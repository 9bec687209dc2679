#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::server {

/// Waits for more data.
class Waiter {
 public:
  virtual ~Waiter() = default;
  /// Called from any thread, once for each wait.
  virtual void wake() = 0;
};
/// Expired waiters are not woken.
using Wake = std::weak_ptr<Waiter>;
/// A text shared by a log and all readers.
using Text = std::shared_ptr<const std::string>;

/// Events of a job, in order, numbered from 1. A reader that missed some continues from the last
/// number it saw. Only the newest 4 MiB of large events (previews) are kept.
class EventLog {
 public:
  /// The event `last` ends the log; later events are dropped.
  void add(const std::string& name, const std::string& data, bool last = false);
  /// Restores the final event, numbered `id`, of a job from an earlier process.
  void restore(uint64_t id, const std::string& name, const std::string& data);

  /// An event of the log.
  struct Event {
    uint64_t id = 0;
    std::string name;
    Text text;  ///< in the format of server-sent events
    /// The data line of the text.
    std::string_view data() const;
  };
  /// Some of the events after a number.
  struct Part {
    std::vector<Event> events;
    bool ended = false;  ///< no more events will follow
  };
  /// Returns at most `most` events after number `after`. If there are none yet, `wake` is woken by
  /// the next event.
  Part after(uint64_t after, const Wake& wake, size_t most = 16);
  uint64_t last_id() const;

 private:
  void bound();

  mutable std::mutex mutex_;
  std::deque<Event> events_;
  std::vector<Wake> waiting_;
  uint64_t last_ = 0;
  size_t large_ = 0;  // bytes of large events
  bool ended_ = false;
};

/// Formats an event as a server-sent event; `id` 0 is omitted.
std::string sse(uint64_t id, const std::string& name, const std::string& data);

}  // namespace tessera::server
