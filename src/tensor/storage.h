#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

namespace tessera::tensor {

/// Where the elements of a tensor live. A meta tensor has a shape and no elements.
enum class Device : uint8_t { cpu, cuda, meta };
const char* name_of(Device device);

/// What memory is used for; the report and the planner count by class.
enum class MemoryClass : uint8_t { weights, activations, kv, buffers };
constexpr int kMemoryClasses = 4;
const char* name_of(MemoryClass memory_class);

/// Counts live bytes by class, and the peaks. Thread-safe. Bytes of meta tensors count too, so a
/// run on `meta` gives the memory of the real one. A message is memory of its receiver from where
/// that expects it, whenever it arrives: so peaks follow from what a rank does, not from how fast
/// its peers do it, and are those of processes where ranks are threads.
class MemoryTracker {
 public:
  /// `whole`: counts everything that this one counts as well, such as a process its ranks.
  explicit MemoryTracker(std::shared_ptr<MemoryTracker> whole = nullptr);
  void add(MemoryClass memory_class, int64_t bytes);
  /// What somebody else of the whole holds already: counts here only.
  void add_shared(MemoryClass memory_class, int64_t bytes);
  const std::shared_ptr<MemoryTracker>& whole() const { return whole_; }
  /// A message is expected from now on; its number is for arrived().
  uint64_t expect();
  /// What was expected is in the hands of who expected it, who counts it from now on, or will never
  /// come: 0 bytes. Until now it was here, among the buffers.
  void arrived(uint64_t expected, int64_t bytes);
  int64_t current(MemoryClass memory_class) const;
  int64_t current() const;
  int64_t peak(MemoryClass memory_class) const;
  /// The largest sum over all classes that was alive at once.
  int64_t peak() const;

 private:
  /// Peaks from one expectation to the next.
  struct Span {
    int64_t buffers = 0, total = 0;
    bool open = true;    // what was expected when it began has not arrived
    uint64_t whole = 0;  // the number of that expectation there
  };
  void raise();

  mutable std::mutex mutex_;
  std::array<int64_t, kMemoryClasses> current_{}, peaks_{};
  int64_t total_ = 0, total_peak_ = 0;
  std::deque<Span> spans_;  // from the first that is open on
  uint64_t first_ = 0;      // number of spans_.front()
  const std::shared_ptr<MemoryTracker> whole_;
};

/// For weights that pass through memory one block after the other: while one of these lives, pages
/// of a large weight that is freed wait for the next that they hold, so that the system need not
/// fill new ones with zeros. A weight that none hold gives all that wait back, and so does the last
/// of these.
class PageReuse {
 public:
  PageReuse();
  ~PageReuse();
  PageReuse(const PageReuse&) = delete;
  PageReuse& operator=(const PageReuse&) = delete;
};

/// A block of bytes that tensors share; freed with its last owner.
class Storage {
 public:
  /// 64-byte aligned, not zeroed, on cpu with slack behind the end for vector loads. Throws
  /// Error(memory), and Error(usage) for a device that is not in use (device_runtime.h).
  static std::shared_ptr<Storage> allocate(int64_t bytes, Device device, MemoryClass memory_class);
  /// Foreign memory; `owner` keeps it alive. Read only by agreement.
  static std::shared_ptr<Storage> view(const void* data, int64_t bytes,
                                       std::shared_ptr<const void> owner);
  /// Some bytes of another storage, which stay while either lives. They count once more as memory
  /// of this class in the caller's scope, or, without a class, nowhere.
  static std::shared_ptr<Storage> part(const Storage& of, int64_t begin, int64_t bytes,
                                       std::optional<MemoryClass> counted);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// Null on meta; on cuda an address that only kernels and copies may read.
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
