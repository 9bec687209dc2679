#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "tensor/tensor.h"
#include "tessera/error.h"

namespace tessera::comm {

/// A message that says to go on, or why not: nothing, or the error's code and text.
tensor::Tensor word_of(const Error* error);
/// The error of a word, if it is one.
std::optional<Error> error_of(const tensor::Tensor& word);

/// How a request ends before its time on one of its ranks, while the world goes on. Thread-safe.
class Ending {
 public:
  /// This rank fails, and the others are to hear of it. False: it has failed before, or has ended
  /// for what it heard.
  bool fail(const Error& error);
  /// Another rank has failed; the first word is what counts.
  void hear(const Error& error);
  /// Throws what ends the waits of this rank, if anything does.
  void check();
  /// What this rank failed with, if it did so by itself.
  std::optional<Error> own() const;

 private:
  std::atomic<bool> over_{false};
  mutable std::mutex mutex_;
  std::optional<Error> own_, heard_;
  bool noticed_ = false;  // what was heard has been thrown here
};

}  // namespace tessera::comm
