#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "tensor/tensor.h"
#include "tessera/traffic.h"

namespace tessera::comm {

/// The purpose of a communication: the operation in errors, traces and byte counts; equal on both
/// sides.
struct Tag {
  const char* operation = "";
  int site = -1;  ///< layer, or -1
  TrafficKind kind = TrafficKind::plan;
  int64_t transfers = 1;  ///< messages of a run, where a dry run sends one in their place
};
/// Control words between ranks, as a decision to stop.
inline constexpr Tag kControl{"go", -1, TrafficKind::control};

/// A tensor on the way to a device. Thread-safe.
class Arrival {
 public:
  virtual ~Arrival() = default;
  /// True if wait() would return at once.
  virtual bool ready() = 0;
  /// The tensor, once: later work of the calling thread's stream sees its elements; the host does
  /// not wait. `expired` as in Inbox::take. Throws the failure of the world.
  virtual tensor::Tensor wait(const std::function<void()>& expired) = 0;
};

/// A message: a dense tensor with its shape and dtype, and the sender's
/// tag.
struct Message {
  Tag tag;
  tensor::Tensor data;                 ///< may have no elements; undefined with an arrival
  std::shared_ptr<Arrival> arrival{};  ///< the tensor on its way, instead of data, or null
  uint64_t order = 0;  ///< how many came before it from this sender to this receiver on its channel
  bool last = false;   ///< no message: the sender closed the channel
  std::chrono::steady_clock::time_point arrived{};  ///< at this rank
};

}  // namespace tessera::comm
