#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "tensor/tensor.h"
#include "tessera/error.h"

namespace tessera::comm {

/// A message to continue, or an error: nothing, or the error's code and text.
tensor::Tensor word_of(const Error* error);
/// The error in a message, if any.
std::optional<Error> error_of(const tensor::Tensor& word);

/// The early end of a request on a rank, while the world continues. Thread-safe.
class Ending {
 public:
  /// This rank fails and tells the others. False: a failure came before, its own or
  /// another's.
  bool fail(const Error& error);
  /// Another rank has failed; the first word counts.
  void hear(const Error& error);
  /// Throws the error behind the end of this rank's waits, if any.
  void check();
  /// This rank's own failure, if any.
  std::optional<Error> own() const;

 private:
  std::atomic<bool> over_{false};
  mutable std::mutex mutex_;
  std::optional<Error> own_, other_error_;
  bool noticed_ = false;  // the other rank's error was thrown here
};

}  // namespace tessera::comm
