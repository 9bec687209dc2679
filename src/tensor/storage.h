#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tessera::tensor {

/// Where the elements of a tensor live. A meta tensor has a shape and no elements.
enum class Device : uint8_t { cpu, cuda, meta };
const char* name_of(Device device);

/// What memory is used for; the report and the planner count by class.
enum class MemoryClass : uint8_t { weights, activations, kv, buffers };
constexpr int kMemoryClasses = 4;
const char* name_of(MemoryClass memory_class);

/// Counts live bytes by class, and the peaks. Thread-safe. Bytes of meta tensors count too, so a
/// run on `meta` gives the memory of the real one.
class MemoryTracker {
 public:
  /// `whole`: counts everything that this one counts as well, such as a process its ranks.
  explicit MemoryTracker(std::shared_ptr<MemoryTracker> whole = nullptr);
  void add(MemoryClass memory_class, int64_t bytes);
  /// What somebody else of the whole holds already: counts here only.
  void add_shared(MemoryClass memory_class, int64_t bytes);
  bool part_of_whole() const { return whole_ != nullptr; }
  int64_t current(MemoryClass memory_class) const;
  int64_t peak(MemoryClass memory_class) const;
  /// The largest sum over all classes that was alive at once.
  int64_t peak() const { return total_peak_.load(); }

 private:
  std::array<std::atomic<int64_t>, kMemoryClasses> current_{}, peaks_{};
  std::atomic<int64_t> total_{0}, total_peak_{0};
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

class DevicePool;

/// A block of bytes that tensors share; freed with its last owner.
class Storage {
 public:
  /// 64-byte aligned, not zeroed, on cpu with slack behind the end for vector loads. Throws
  /// Error(memory), and Error(usage) for a device that is not in use (device_runtime.h).
  static std::shared_ptr<Storage> allocate(int64_t bytes, Device device, MemoryClass memory_class);
  /// Foreign memory; `owner` keeps it alive. Read only by agreement.
  static std::shared_ptr<Storage> view(const void* data, int64_t bytes,
                                       std::shared_ptr<const void> owner);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  /// Null on meta; on cuda an address that only kernels and copies may read.
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }

 private:
  Storage() = default;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  Device device_ = Device::cpu;
  MemoryClass memory_class_ = MemoryClass::activations;
  bool owned_ = false;
  std::shared_ptr<MemoryTracker> tracker_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<DevicePool> pool_;  // of device memory
};

}  // namespace tessera::tensor
