#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tessera::tensor {

/// Memory of a device in bytes, of all processes.
struct DeviceMemory {
  int64_t free = 0, total = 0;
};

/// Which way elements go.
enum class CopyWay : uint8_t { upload, download, within };

/// `rows` runs of `width` bytes; from one run to the next it is `pitch` bytes.
struct CopyBox {
  void* to = nullptr;
  int64_t to_pitch = 0;
  const void* from = nullptr;
  int64_t from_pitch = 0;
  int64_t width = 0, rows = 1;
};

/// Work that a device has recorded. To be destroyed when none of it is under way.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Queues all of it.
  virtual void launch(void* stream) = 0;
};

/// What tensors need of a device: memory, copies, order. All that a process computes on its device
/// goes to one stream, in order; a stream is `Scope::stream` (null: the device's own). Others, from
/// make_stream(), work beside it, and events order them. Thread-safe.
/// Every function may throw Error(memory) or Error(rank) with the text of the driver.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  /// "NVIDIA H100 80GB HBM3", as reports name it.
  virtual std::string name() const = 0;
  virtual DeviceMemory memory() const = 0;
  /// Makes the device the calling thread's; called before work that a thread may begin with.
  virtual void enter() {}
  /// Device memory, 256-byte aligned; null when there is not so much.
  virtual void* allocate(int64_t bytes) = 0;
  /// Waits for all work that was begun.
  virtual void free(void* memory) = 0;
  /// An upload has read the host's bytes when this returns; a download has written them only after
  /// synchronise().
  virtual void copy(const CopyBox& box, CopyWay way, void* stream) = 0;
  virtual void zero(void* to, int64_t bytes, void* stream) = 0;
  /// Waits until all work of the stream is done.
  virtual void synchronise(void* stream) = 0;
  /// A stream whose work is recorded, not done, until end_recording() takes it away; null where the
  /// device cannot.
  virtual void* begin_recording() { return nullptr; }
  virtual std::unique_ptr<DeviceGraph> end_recording(void*) { return nullptr; }

  /// A stream beside all others, for its handle's life.
  virtual std::shared_ptr<void> make_stream() = 0;
  /// An event: all work that the stream was given so far.
  virtual std::shared_ptr<void> record(void* stream) = 0;
  /// Work that the stream is given from now on begins after the event; the host does not wait.
  virtual void wait(void* stream, void* event) = 0;
  virtual int multiprocessors() const = 0;
  /// Kernels that would fill the device for long leave so many of its multiprocessors to those of
  /// other streams, from now on, or a quarter if that is less. No result depends on it.
  virtual void spare(int /*multiprocessors*/) {}
  /// Whether the work of an event is done.
  virtual bool done(void* event) = 0;
};

}  // namespace tessera::tensor
