#pragma once

#include <microhttpd.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/http.h"

namespace tessera::server {

/// A request on its way through the listener. It sleeps while there is nothing to send, and is
/// woken from any thread.
class Exchange : public Waiter, public std::enable_shared_from_this<Exchange> {
 public:
  explicit Exchange(MHD_Connection* connection) : connection_(connection) {}

  /// On the listener's thread: sleeps, unless it was woken meanwhile or must end.
  bool sleep();
  void wake() override;
  Wake waker() { return weak_from_this(); }
  /// The client has left, or the server ends: it sleeps no more.
  void end();
  bool ending() const;
  /// The connection is no more.
  void forget();
  /// Whether it sleeps, and the client of it left meanwhile.
  bool abandoned() const;
  /// Woken to send a comment, if it sleeps.
  void beat();
  bool take_beat();

  HttpRequest request;
  std::optional<HttpReply> answer;  ///< one that comes later, or is being sent
  std::string rest;                 ///< of the stream, taken and not sent yet
  bool stream_ended = false, admitted = false, too_long = false;
  int status = 0;
  bool slowed = false;  ///< its answer waits for a moment, see slow_reply()
  std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();

 private:
  mutable std::mutex mutex_;
  MHD_Connection* connection_;
  bool asleep_ = false, woken_ = false, ending_ = false, beat_ = false;
};

}  // namespace tessera::server
