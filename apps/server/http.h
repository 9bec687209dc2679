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

/// A completely read request.
struct HttpRequest {
  std::string method, path;                    ///< decoded, without the query
  std::map<std::string, std::string> query;    ///< from ?name=value
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
  std::string client;    ///< the key's name, else the address
  bool sees_all = true;  ///< may see all clients' numbers: operator's key, or no keys
  std::string address;   ///< peer address
  std::string header(const std::string& name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? "" : it->second;
  }
};

/// A streamed body, polled on the listener thread; must never block.
class Stream {
 public:
  virtual ~Stream() = default;
  struct Piece {
    Text text;  ///< null: nothing
    bool ended = false;
  };
  /// Returns the available data, or nothing if `wake` will be woken later.
  virtual Piece next(const Wake& wake) = 0;
  /// The client received everything, or left.
  virtual void closed(bool /*whole*/) {}
};

/// An answer: a body, a file, a stream, or a deferred answer.
struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers{};
  std::string file{};                ///< path of a file, sent instead of `body`
  std::shared_ptr<Stream> stream{};  ///< sent in pieces instead of `body`
  /// Called again after each wake until an answer is returned; all other fields are then ignored.
  std::function<std::optional<HttpReply>(const Wake& wake)> later{};
  std::function<void()> on_disconnect{};  ///< the client left before the deferred answer
};

HttpReply json_reply(const Json& json, int status = 200);
HttpReply reply_of(const Refusal& refusal);
/// Sends the refusal after one second.
HttpReply slow_reply(const Refusal& refusal);

}  // namespace tessera::server
