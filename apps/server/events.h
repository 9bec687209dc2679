#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::server {

/// Who waits for more of something.
class Waiter {
 public:
  virtual ~Waiter() = default;
  /// From any thread, once for each wait.
  virtual void wake() = 0;
};
/// One that is gone is not woken.
using Wake = std::weak_ptr<Waiter>;
/// A text that a log and all who read it share.
using Text = std::shared_ptr<const std::string>;

/// What happened to a job, in order, numbered from 1; who missed some reads on from where he was.
/// Of large events (previews) the newest are kept, 4 MiB of them.
class EventLog {
 public:
  /// The last event ends the log: what is added afterwards is dropped.
  void add(const std::string& name, const std::string& data, bool last = false);
  /// Of a job that another process ran: its end alone, numbered `id`.
  void restore(uint64_t id, const std::string& name, const std::string& data);

  /// An event of the log.
  struct Event {
    uint64_t id = 0;
    std::string name;
    Text text;  ///< as a client of server-sent events reads it
    /// The data line of the text.
    std::string_view data() const;
  };
  /// Some of what follows number `after`.
  struct Part {
    std::vector<Event> events;
    bool ended = false;  ///< and there will be no more
  };
  /// `most` events; where there is nothing yet, `wake` is woken when there is.
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

/// An event as a client of server-sent events reads it; `id` 0 is left out.
std::string sse(uint64_t id, const std::string& name, const std::string& data);

}  // namespace tessera::server
