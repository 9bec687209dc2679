#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/events.h"
#include "server/refusal.h"

namespace tessera::server {

/// A request, read whole.
struct HttpRequest {
  std::string method, path;                    ///< decoded, without the query
  std::map<std::string, std::string> query;    ///< of ?name=value
  std::map<std::string, std::string> headers;  ///< by their names in small letters
  std::string body;
  std::string client;    ///< the key's name, else the address
  bool sees_all = true;  ///< numbers of all clients: an operator's key, or a server without keys
  std::string address;   ///< of the other side
  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

/// A body that comes in pieces, asked for on the thread of the listener: never waits.
class Stream {
 public:
  virtual ~Stream() = default;
  struct Piece {
    Text text;  ///< null: nothing
    bool ended = false;
  };
  /// What there is; nothing only where `wake` will be woken.
  virtual Piece next(const Wake& wake) = 0;
  /// The client has all of it, or is gone.
  virtual void closed(bool /*whole*/) {}
};

/// An answer: a body, a file or a stream, or one that comes later.
struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers{};
  std::string file{};                ///< path of what is sent instead of `body`
  std::shared_ptr<Stream> stream{};  ///< the same, in pieces
  /// Asked again after each wake until it gives the answer; all else of this one is nothing then.
  std::function<std::optional<HttpReply>(const Wake& wake)> later{};
  std::function<void()> gone{};  ///< the client left before the answer that comes later
};

HttpReply json_reply(const Json& json, int status = 200);
HttpReply reply_of(const Refusal& refusal);
/// The same after a second, when it is asked again.
HttpReply slow_reply(const Refusal& refusal);

}  // namespace tessera::server
