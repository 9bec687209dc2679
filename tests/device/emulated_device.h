#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tensor/device_pool.h"

namespace tessera::device {

/// The memory of the process's emulated GPU.
class Arena {
 public:
  explicit Arena(int64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* begin() const { return begin_; }
  int64_t bytes() const { return bytes_; }
  bool holds(const void* address) const;
  /// Opens the memory until destruction, on any thread.
  class Open {
   public:
    explicit Open(Arena& arena);
    ~Open();
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    Arena& arena_;
  };

 private:
  std::byte* begin_ = nullptr;
  int64_t bytes_ = 0;
};

/// The memory and the streams of an emulated GPU for tests: Device::cuda is memory of this process,
/// accessible only while a copy of the runtime or a kernel runs, so direct access by host code
/// faults. The device's own stream runs work at once, on the calling thread; created streams are
/// threads.
class EmulatedDevice {
 public:
  explicit EmulatedDevice(int64_t capacity = int64_t{2} << 30);
  ~EmulatedDevice();
  EmulatedDevice(const EmulatedDevice&) = delete;
  EmulatedDevice& operator=(const EmulatedDevice&) = delete;

  /// Copies so far.
  int64_t uploads() const;
  int64_t downloads() const;
  /// Sets the number of multiprocessors instead of 100.
  void shrink_to(int multiprocessors);
  /// Multiprocessors left to others by kernels, now and the last time the number was not zero.
  int spared() const;
  int most_spared() const;
  /// The number of replays of recorded work.
  int64_t replays() const;
  tensor::DevicePool& pool() const { return *pool_; }
  Arena& arena() const { return *arena_; }

 private:
  Arena* arena_ = nullptr;  // the pool's
  std::shared_ptr<tensor::DevicePool> pool_;
};

/// Recorded work: copies and kernels in order.
using Recorded = std::vector<std::function<void()>>;
/// Returns a stream whose work is recorded instead of run.
void* start_recording();
/// Returns the recorded work and removes the stream.
std::shared_ptr<Recorded> stop_recording(void* stream);
/// Records work for a recorded stream, queues work for a created stream, and runs work at once for
/// the device's own.
void do_or_record(void* stream, std::function<void()> work);
}  // namespace tessera::device
