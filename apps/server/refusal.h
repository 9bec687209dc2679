#pragma once

#include <stdexcept>
#include <string>

#include "server/json.h"

namespace tessera::server {

/// An HTTP error answer: a status, and a reason in OpenAI's format.
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
  /// Seconds before a retry makes sense; 0: never.
  int retry_after() const { return retry_after_; }
  /// Allowed methods of a 405; else "".
  const std::string& allow() const { return allow_; }

 private:
  int status_, retry_after_;
  std::string type_, param_, allow_;
};

/// A refusal answered after one second, to slow down key guessing.
class SlowRefusal : public Refusal {
 public:
  explicit SlowRefusal(const Refusal& refusal) : Refusal(refusal) {}
};

/// An invalid request: 400, naming the parameter.
Refusal wrong(const std::string& param, const std::string& message);
/// A missing resource: 404.
Refusal not_found(const std::string& message);

/// {"error": {"message", "type", "param", "code"}}.
Json body_of(const Refusal& refusal);

}  // namespace tessera::server
