#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/http.h"
#include "server/options.h"

namespace tessera::server {

/// An answered request, for the log.
struct Answered {
  std::string method, path, client, address;
  int status = 0;
  double seconds = 0;
  bool whole = true;  ///< the client received the whole answer
};

/// Callbacks of a listener.
struct Handlers {
  /// Runs on the listener thread before the body is read; throws Refusal.
  std::function<void(HttpRequest& request)> admit;
  /// True if handle() is quick and may run on the listener thread.
  std::function<bool(const HttpRequest& request)> quick;
  /// Runs on a pool; for a request with a body other than POST, on the listener thread.
  std::function<HttpReply(const HttpRequest& request)> handle;
  /// Runs on the listener thread.
  std::function<void(const Answered& answered)> log;
};

/// HTTP/1.1 server on one socket: a single epoll thread for all connections, and a pool that
/// computes answers. Waiting connections need no thread.
class Listener {
 public:
  /// Starts to listen. Throws Error(usage) for an unavailable address or port.
  Listener(const ServeOptions& options, Handlers handlers);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// The port, and the address as written in a URL.
  int port() const;
  std::string url() const;
  unsigned connections() const;
  /// Detects clients that left while waiting and keeps streams alive; called once a second.
  void tend();
  /// Accepts no more connections; open connections continue.
  void quiesce();

  /// Private state, defined in listener.cpp.
  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace tessera::server
