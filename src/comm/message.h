#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "tensor/tensor.h"

namespace tessera::comm {

/// What a communication is for. It names the operation in errors, traces and byte counts; both
/// sides give the same one.
struct Tag {
  const char* operation = "";
  int site = -1;  ///< layer, or -1
};

/// A tensor that is on its way to a device. Thread-safe.
class Arrival {
 public:
  virtual ~Arrival() = default;
  /// Whether wait() would return at once.
  virtual bool ready() = 0;
  /// The tensor, once: later work of the calling thread's stream sees its elements, for which the
  /// host does not wait. `expired` as in Inbox::take. Throws the failure of the world.
  virtual tensor::Tensor wait(const std::function<void()>& expired) = 0;
};

/// One message: a dense tensor, which arrives with the shape and dtype it was sent with, and what
/// the sender says it is for.
struct Message {
  Tag tag;
  tensor::Tensor data;                 ///< may have no elements; undefined where an arrival stands
  std::shared_ptr<Arrival> arrival{};  ///< what the message holds instead of data, or null
  uint64_t order = 0;  ///< how many came before it from this sender to this receiver on its channel
  bool last = false;   ///< no message, but the word that the sender closed the channel
  std::chrono::steady_clock::time_point arrived{};  ///< here
};

}  // namespace tessera::comm
