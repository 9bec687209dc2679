#pragma once

#include <stdexcept>
#include <string>

namespace tessera {

/// What went wrong, as the exit status that the command line ends with.
enum class ErrorCode {
  usage = 2,        ///< an option, a size or an argument is wrong
  model = 3,        ///< a model folder or file is missing, damaged or not what it says
  plan = 4,         ///< the plan cannot run
  rank = 5,         ///< a rank or its network failed
  memory = 6,       ///< it does not fit in memory
  cancelled = 130,  ///< the caller asked to stop
};

/// The one exception type of the library. The message names the thing, its value, what was
/// expected and what to do; it is one line.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  /// The kind of failure; its number is the exit status of the command line.
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

/// The failure of another process of the same run, which reports it: a program need not print it
/// again, only end with code().
class EchoError : public Error {
 public:
  using Error::Error;
};

}  // namespace tessera
