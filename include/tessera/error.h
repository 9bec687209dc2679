#pragma once

#include <stdexcept>
#include <string>

namespace tessera {

/// The kind of an error, numbered as the exit status of the command line.
enum class ErrorCode {
  usage = 2,        ///< an option, a size or an argument is wrong
  model = 3,        ///< a model folder or file is missing, damaged or of another kind
  plan = 4,         ///< the plan cannot run
  rank = 5,         ///< a rank or its network failed
  memory = 6,       ///< the run does not fit in memory
  cancelled = 130,  ///< the caller asked to stop
};

/// The only exception of the library. The message is a single line: the thing, the value, the
/// expectation and a remedy. Request fields stand in backticks; field_names.h spells them.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  /// The kind of failure, numbered as the exit status of the command line.
  ErrorCode code() const noexcept { return code_; }
  /// The request field that the message begins with, as "top_k", or "".
  std::string field() const;

 private:
  ErrorCode code_;
};

/// The failure of another process of the run, reported there: end with code() and print
/// nothing.
class EchoError : public Error {
 public:
  using Error::Error;
};

}  // namespace tessera
