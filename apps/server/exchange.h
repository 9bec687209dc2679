#pragma once

#include <microhttpd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/http.h"
#include "server/quota.h"

namespace tessera::server {

/// A request on its way through the listener. It sleeps while there is nothing to send, and is
/// woken from any thread; what takes long is done on a pool meanwhile.
class Exchange : public Waiter, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(MHD_Connection* connection, const char* target);
  ~Exchange() override;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// On the listener's thread: sleeps, unless it was woken meanwhile or must end.
  bool sleep();
  void wake() override;
  Wake waker() { return weak_from_this(); }
  /// The client has left, or the server ends: it sleeps no more.
  void end();
  bool ending() const;
  /// Whether it sleeps, and the client of it left meanwhile.
  bool abandoned() const;
  /// Woken to send a comment, if it sleeps.
  void beat();
  bool take_beat();

  /// The work on an answer, which the pool does and the listener waits for.
  enum class Work { none, running, again, done };
  /// On the listener's thread: `none` when it must be given to the pool, and is at work from now.
  Work begin_work();
  /// On the pool: `done`, or nothing to do until a wake. Gives `again` where a wake came meanwhile,
  /// `none` where the client left, who cannot be answered.
  Work end_work(bool done);
  /// The connection is no more. Whether the pool is at work, which then sees to the answer.
  bool forget();

  HttpRequest request;
  const size_t target;              ///< bytes of the request's target
  const bool plain_target;          ///< without control characters and "%00"
  bool begun = false;               ///< its head was read
  bool closes = false;              ///< the connection is closed behind the answer
  bool too_long = false;            ///< more came than was announced
  std::optional<HttpReply> answer;  ///< one that comes later, or is being sent
  Text piece;                       ///< of the stream
  size_t sent = 0;                  ///< bytes of the piece
  bool stream_ended = false;
  int file = -1;  ///< that is sent
  uint64_t file_bytes = 0;
  Held body, held;  ///< bytes of the request; what the answer takes
  int status = 0;
  std::atomic<bool> slowed = false;  ///< its answer waits for a moment, see slow_reply()
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();

 private:
  mutable std::mutex mutex_;
  MHD_Connection* connection_;
  Work work_ = Work::none;
  bool asleep_ = false, woken_ = false, ending_ = false, beat_ = false;
};

}  // namespace tessera::server
