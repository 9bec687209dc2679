#pragma once

#include <string>

#include "server/http.h"
#include "server/keys.h"
#include "server/wrong_keys.h"

namespace tessera::server {

/// Who may ask what: looked at before a body is read.
class Guard {
 public:
  /// `loopback`: the server listens to this machine alone, so that only names of it may be asked.
  Guard(ApiKeys keys, bool loopback) : keys_(std::move(keys)), loopback_(loopback) {}
  /// Names the request's client. Throws Refusal: 401 without a key, 403 for another site's page
  /// (Origin, Sec-Fetch-Site), 421 for a Host that is none of this machine's (a name that was bound
  /// to it by another site).
  void admit(HttpRequest& request) const;
  const ApiKeys& keys() const { return keys_; }

 private:
  [[noreturn]] void refuse_key(const HttpRequest& request) const;

  ApiKeys keys_;
  mutable WrongKeys wrong_;  // of one thread, the listener's
  bool loopback_;
};

/// Whether a path needs no key: the page, and whether the server is well.
bool is_open(const std::string& path);

}  // namespace tessera::server
