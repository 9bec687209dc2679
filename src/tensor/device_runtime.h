#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tessera::tensor {

/// Memory of a device in bytes, of all processes.
struct DeviceMemory {
  int64_t free = 0, total = 0;
};

/// The direction of a copy.
enum class CopyWay : uint8_t { upload, download, within };

/// `rows` runs of `width` bytes, `pitch` bytes apart.
struct CopyBox {
  void* to = nullptr;
  int64_t to_pitch = 0;
  const void* from = nullptr;
  int64_t from_pitch = 0;
  int64_t width = 0, rows = 1;
};

/// Recorded work of a device. Destroy only when no launch is in progress.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Queues the recorded work.
  virtual void launch(void* stream) = 0;
};

/// The interface of a device for tensors: memory, copies, order. A process computes in order on a
/// single stream of its device; a stream is `Scope::stream` (null: the device's own). Streams from
/// make_stream() run concurrently, and events order them. Thread-safe. Every function may throw
/// Error(memory) or Error(rank) with the text of the driver.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  /// "NVIDIA H100 80GB HBM3", for reports.
  virtual std::string name() const = 0;
  /// "0000:3B:00.0", the same in all processes of the machine; "": unknown.
  virtual std::string address() const { return ""; }
  virtual DeviceMemory memory() const = 0;
  /// Makes the device current for the calling thread; called before a thread's possibly first work.
  virtual void enter() {}
  /// Device memory, 256-byte aligned; null if memory is exhausted.
  virtual void* allocate(int64_t bytes) = 0;
  /// Waits for all started work.
  virtual void free(void* memory) = 0;
  /// After return an upload has read the host's bytes; a download has written them only after
  /// synchronise().
  virtual void copy(const CopyBox& box, CopyWay way, void* stream) = 0;
  virtual void zero(void* to, int64_t bytes, void* stream) = 0;
  /// Waits until all work of the stream is done.
  virtual void synchronise(void* stream) = 0;
  /// Starts a stream with work that is recorded instead of run, until end_recording(); null if the
  /// device does not support recording.
  virtual void* begin_recording() { return nullptr; }
  virtual std::unique_ptr<DeviceGraph> end_recording(void*) { return nullptr; }

  /// A concurrent stream for the lifetime of the handle.
  virtual std::shared_ptr<void> make_stream() = 0;
  /// Records an event: all work of the stream so far.
  virtual std::shared_ptr<void> record(void* stream) = 0;
  /// Later work of the stream starts after the event; the host does not wait.
  virtual void wait(void* stream, void* event) = 0;
  virtual int multiprocessors() const = 0;
  /// Long kernels leave this many multiprocessors to other streams, from now on, but at most a
  /// quarter. Results do not depend on the number.
  virtual void spare(int /*multiprocessors*/) {}
  /// Whether the work of an event is done.
  virtual bool done(void* event) = 0;
};

}  // namespace tessera::tensor
