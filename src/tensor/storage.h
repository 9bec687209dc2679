#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

namespace tessera::tensor {

/// The place of a tensor's elements. A meta tensor has a shape and no elements.
enum class Device : uint8_t { cpu, cuda, meta };
const char* name_of(Device device);

/// The use of memory; reports and the planner count by class.
enum class MemoryClass : uint8_t { weights, activations, kv, buffers };
constexpr int kMemoryClasses = 4;
const char* name_of(MemoryClass memory_class);

/// Counts live bytes by class, and their peaks. Thread-safe. Bytes of meta tensors count too, so a
/// run on `meta` predicts the memory of the real run. A message counts as memory of its receiver
/// from the posting of the receive, independent of its arrival. So peaks depend on the rank's own
/// work and not on the speed of peers, and are the same for threads and processes.
class MemoryTracker {
 public:
  /// `whole`: an outer tracker, such as a process's tracker over its ranks; receives all counts,
  /// too.
  explicit MemoryTracker(std::shared_ptr<MemoryTracker> whole = nullptr);
  void add(MemoryClass memory_class, int64_t bytes);
  /// Counts bytes here only, because another rank of the outer tracker holds them already.
  void add_shared(MemoryClass memory_class, int64_t bytes);
  const std::shared_ptr<MemoryTracker>& whole() const { return whole_; }
  /// Counts an expected message from now on; returns its number for arrived().
  uint64_t expect();
  /// Ends the count of an expected message among the buffers: its receiver counts the bytes from
  /// now on, or the message never comes (0 bytes).
  void arrived(uint64_t expected, int64_t bytes);
  int64_t current(MemoryClass memory_class) const;
  int64_t current() const;
  int64_t peak(MemoryClass memory_class) const;
  /// The largest sum over all classes at any time.
  int64_t peak() const;

 private:
  /// Peaks between two expected messages.
  struct Span {
    int64_t buffers = 0, total = 0;
    bool open = true;    // the expected message of the span's start has not arrived
    uint64_t whole = 0;  // number of the expected message in the outer tracker
  };
  void raise();

  mutable std::mutex mutex_;
  std::array<int64_t, kMemoryClasses> current_{}, peaks_{};
  int64_t total_ = 0, total_peak_ = 0;
  std::deque<Span> spans_;  // from the first open span on
  uint64_t first_ = 0;      // number of spans_.front()
  const std::shared_ptr<MemoryTracker> whole_;
};

/// For streaming weights block by block. While an object lives, the pages of a freed large weight
/// wait for the next weight of at most their size, so that the system need not zero new pages. A
/// weight for which no waiting pages fit releases all of them, as does the destructor of the last
/// object.
class PageReuse {
 public:
  PageReuse();
  ~PageReuse();
  PageReuse(const PageReuse&) = delete;
  PageReuse& operator=(const PageReuse&) = delete;
};

/// A block of bytes shared by tensors; freed with its last owner.
class Storage {
 public:
  /// 64-byte aligned, not zeroed, on cpu with slack behind the end for vector loads. Throws
  /// Error(memory), and Error(usage) for a device not in use (device_runtime.h).
  static std::shared_ptr<Storage> allocate(int64_t bytes, Device device, MemoryClass memory_class);
  /// Foreign memory; `owner` keeps the bytes alive. Read-only by convention.
  static std::shared_ptr<Storage> view(const void* data, int64_t bytes,
                                       std::shared_ptr<const void> owner);
  /// Some bytes of another storage, which lives on with the part. The bytes count once more as
  /// memory of the class in the caller's scope, or without a class nowhere.
  static std::shared_ptr<Storage> part(const Storage& of, int64_t begin, int64_t bytes,
                                       std::optional<MemoryClass> memory_class);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// Null on meta; on cuda an address only for kernels and copies.
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  Storage() = default;
  void count(MemoryClass memory_class);

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  Device device_ = Device::cpu;
  MemoryClass memory_class_ = MemoryClass::activations;
  std::shared_ptr<MemoryTracker> tracker_;
  std::shared_ptr<const void> memory_;  // freed with its last owner
};

}  // namespace tessera::tensor
