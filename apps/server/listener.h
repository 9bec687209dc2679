#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/http.h"
#include "server/options.h"

namespace tessera::server {

/// One answered request, for the log.
struct Answered {
  std::string method, path, client, address;
  int status = 0;
  double seconds = 0;
  bool whole = true;  ///< the client got all of it
};

/// What a listener asks.
struct Handlers {
  /// On its thread, before a body is read; throws Refusal.
  std::function<void(HttpRequest& request)> admit;
  /// Whether handle() takes no time, and may be asked on the listener's thread.
  std::function<bool(const HttpRequest& request)> quick;
  /// On a pool; of a request that is no POST and has a body, on the listener's thread.
  std::function<HttpReply(const HttpRequest& request)> handle;
  /// On its thread.
  std::function<void(const Answered& answered)> log;
};

/// HTTP/1.1 on one socket: one thread for all connections (epoll), none for those that wait, and a
/// pool that makes the answers.
class Listener {
 public:
  /// Listens at once. Throws Error(usage) for an address or a port that cannot be had.
  Listener(const ServeOptions& options, Handlers handlers);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// The port, and an address as it stands in a URL.
  int port() const;
  std::string url() const;
  unsigned connections() const;
  /// Looks for clients that left while they waited, and keeps streams alive; once a second.
  void tend();
  /// Takes no more connections; those that are open go on.
  void quiesce();

  /// What it holds; known to its own file alone.
  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace tessera::server
