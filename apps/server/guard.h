#pragma once

#include <string>

#include "server/http.h"
#include "server/keys.h"
#include "server/wrong_keys.h"

namespace tessera::server {

/// Authorises requests before their body is read.
class Guard {
 public:
  /// `loopback`: the server listens on this machine only and accepts no other host names.
  Guard(ApiKeys keys, bool loopback) : keys_(std::move(keys)), loopback_(loopback) {}
  /// Sets the request's client. Throws Refusal: 401 without a key, 403 for a page of another site
  /// (Origin, Sec-Fetch-Site), 421 for a Host that is not this machine (DNS rebinding).
  void admit(HttpRequest& request) const;
  const ApiKeys& keys() const { return keys_; }

 private:
  [[noreturn]] void refuse_key(const HttpRequest& request) const;

  ApiKeys keys_;
  mutable WrongKeys wrong_;  // used by the listener thread only
  bool loopback_;
};

/// True if a path needs no key: the page and the health check.
bool is_open(const std::string& path);

}  // namespace tessera::server
