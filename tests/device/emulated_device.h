#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tensor/device_pool.h"

namespace tessera::device {

/// The memory of the one emulated GPU of the process.
class Arena {
 public:
  explicit Arena(int64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* begin() const { return begin_; }
  int64_t bytes() const { return bytes_; }
  bool holds(const void* address) const;
  /// Opens the memory while one of these lives, on any thread.
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

/// The memory and the streams of a GPU that is none, for tests: Device::cuda is memory of this
/// process that nobody may touch except while one of the runtime's copies or a kernel runs, so that
/// host code which reads or writes it by itself faults. Its own stream does what it is told at
/// once, on the thread that tells it; those that are made are threads.
class EmulatedDevice {
 public:
  explicit EmulatedDevice(int64_t capacity = int64_t{2} << 30);
  ~EmulatedDevice();
  EmulatedDevice(const EmulatedDevice&) = delete;
  EmulatedDevice& operator=(const EmulatedDevice&) = delete;

  /// Copies so far.
  int64_t uploads() const;
  int64_t downloads() const;
  /// So many multiprocessors instead of 100.
  void shrink_to(int multiprocessors);
  /// Multiprocessors that kernels leave to others, now and the last time that there were any.
  int spared() const;
  int most_spared() const;
  /// How often recorded work was done again.
  int64_t replays() const;
  tensor::DevicePool& pool() const { return *pool_; }
  Arena& arena() const { return *arena_; }

 private:
  Arena* arena_ = nullptr;  // the pool's
  std::shared_ptr<tensor::DevicePool> pool_;
};

/// Work that was recorded: copies and kernels in order.
using Recorded = std::vector<std::function<void()>>;
/// A stream whose work is put down, not done.
void* start_recording();
/// What was put down since; the stream is gone.
std::shared_ptr<Recorded> stop_recording(void* stream);
/// Puts work down if its stream is recorded, hands it over if the stream is one that was made, does
/// it at once on the device's own.
void do_or_record(void* stream, std::function<void()> work);
}  // namespace tessera::device
