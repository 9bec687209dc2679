#pragma once

#include <stdexcept>
#include <string>

#include "server/json.h"

namespace tessera::server {

/// What a client gets instead of a result: a status of HTTP, and a reason in OpenAI's form.
class Refusal : public std::runtime_error {
 public:
  Refusal(int status, std::string type, const std::string& message, std::string param = "",
          int retry_after = 0, std::string allow = "")
      : std::runtime_error(message),
        status_(status),
        retry_after_(retry_after),
        type_(std::move(type)),
        param_(std::move(param)),
        allow_(std::move(allow)) {}

  int status() const { return status_; }
  const std::string& type() const { return type_; }
  const std::string& param() const { return param_; }
  /// Seconds after which it is worth another try; 0: it never is.
  int retry_after() const { return retry_after_; }
  /// The methods that there are, of a 405; else "".
  const std::string& allow() const { return allow_; }

 private:
  int status_, retry_after_;
  std::string type_, param_, allow_;
};

/// One whose answer waits for a second, so that nobody tries keys fast.
class SlowRefusal : public Refusal {
 public:
  explicit SlowRefusal(const Refusal& refusal) : Refusal(refusal) {}
};

/// A request that is wrong: 400, naming the parameter.
Refusal wrong(const std::string& param, const std::string& message);
/// Nothing is there: 404.
Refusal not_found(const std::string& message);

/// {"error": {"message", "type", "param", "code"}}.
Json body_of(const Refusal& refusal);

}  // namespace tessera::server
