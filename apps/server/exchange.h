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

/// A request inside the listener. The connection sleeps while there is nothing to send; any thread
/// may wake it. Slow work runs on a pool.
class Exchange : public Waiter, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(MHD_Connection* connection, const char* target);
  ~Exchange() override;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Sleeps, unless a wake came in the meantime or the exchange must end. Listener thread only.
  bool sleep();
  void wake() override;
  Wake waker() { return weak_from_this(); }
  /// The client left, or the server ends: no more sleep.
  void end();
  bool ending() const;
  /// True if the client left during a sleep.
  bool abandoned() const;
  /// Wakes a sleeping stream to send a comment.
  void beat();
  bool take_beat();

  /// State of an answer that the pool computes and the listener waits for.
  enum class Work { none, running, again, done };
  /// Claims the work for the pool if the returned state is `none`. Listener thread only.
  Work begin_work();
  /// Ends work on the pool: `done`, or idle until a wake. Returns `again` if a wake came in the
  /// meantime, and `none` if the client left and no answer is possible.
  Work end_work(bool done);
  /// The connection is gone. Returns true if the pool is working and will clean up.
  bool forget();

  HttpRequest request;
  const size_t target;              ///< bytes of the request target
  const bool plain_target;          ///< no control characters and no "%00"
  bool head_read = false;           ///< the request head was read
  bool closes = false;              ///< the connection closes after the answer
  bool too_long = false;            ///< more bytes came than announced
  std::optional<HttpReply> answer;  ///< a deferred answer, or the answer being sent
  Text piece;                       ///< current piece of the stream
  size_t sent = 0;                  ///< bytes sent of the piece
  bool stream_ended = false;
  int file = -1;  ///< file being sent
  uint64_t file_bytes = 0;
  QuotaLease body, answer_lease;  ///< bytes of the request; bytes of the answer
  int status = 0;
  std::atomic<bool> slowed = false;  ///< the answer is delayed, see slow_reply()
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();

 private:
  mutable std::mutex mutex_;
  MHD_Connection* connection_;
  Work work_ = Work::none;
  bool asleep_ = false, woken_ = false, ending_ = false, beat_ = false;
};

}  // namespace tessera::server
