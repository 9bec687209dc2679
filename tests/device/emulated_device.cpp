#include "device/emulated_device.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device/emulated_streams.h"

namespace tessera::device {
namespace {

using tensor::CopyBox;
using tensor::CopyWay;

std::mutex opening;
int open_count = 0;  // under the mutex
std::atomic<int64_t> upload_count{0}, download_count{0};

std::atomic<int64_t> replay_count{0};
std::atomic<int> spared_now{0}, spared_most{0}, multiprocessors_now{100};

std::mutex recording;
std::map<void*, std::shared_ptr<Recorded>> recorded;  // by stream

class EmulatedGraph : public tensor::DeviceGraph {
 public:
  explicit EmulatedGraph(std::shared_ptr<Recorded> work) : work_(std::move(work)) {}
  void launch(void* stream) override {
    ++replay_count;
    do_or_record(stream, [work = work_] {
      for (const auto& one : *work) one();
    });
  }

 private:
  std::shared_ptr<Recorded> work_;
};

/// First fit over the arena.
class EmulatedRuntime : public tensor::DeviceRuntime {
 public:
  explicit EmulatedRuntime(int64_t bytes) : arena_(bytes) { holes_[0] = bytes; }
  std::string name() const override { return "emulated GPU"; }
  int multiprocessors() const override { return multiprocessors_now; }
  tensor::DeviceMemory memory() const override {
    const std::lock_guard lock(mutex_);
    int64_t free = 0;
    for (const auto& [at, size] : holes_) free += size;
    return {free, arena_.bytes()};
  }
  void* allocate(int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    bytes = (bytes + 255) / 256 * 256;
    for (auto it = holes_.begin(); it != holes_.end(); ++it) {
      const auto [at, size] = *it;
      if (size < bytes) continue;
      holes_.erase(it);
      if (size > bytes) holes_[at + bytes] = size - bytes;
      sizes_[at] = bytes;
      return arena_.begin() + at;
    }
    return nullptr;
  }
  void free(void* memory) override {
    const std::lock_guard lock(mutex_);
    const int64_t at = static_cast<std::byte*>(memory) - arena_.begin();
    auto hole = holes_.emplace(at, sizes_.at(at)).first;
    sizes_.erase(at);
    if (const auto next = std::next(hole);
        next != holes_.end() && hole->first + hole->second == next->first) {
      hole->second += next->second;
      holes_.erase(next);
    }
    if (hole == holes_.begin()) return;
    const auto before = std::prev(hole);
    if (before->first + before->second != hole->first) return;
    before->second += hole->second;
    holes_.erase(hole);
  }
  void copy(const CopyBox& box, CopyWay way, void* stream) override {
    const bool to = way != CopyWay::download, from = way != CopyWay::upload;
    if (arena_.holds(box.to) != to || arena_.holds(box.from) != from)
      throw std::logic_error("a copy goes another way than it says");
    upload_count += way == CopyWay::upload;
    download_count += way == CopyWay::download;
    if (!stream || way != CopyWay::upload) return do_or_record(stream, [this, box] { move(box); });
    // The host's bytes are read before this returns.
    const auto read = std::make_shared<std::vector<std::byte>>(size_t(box.rows * box.width));
    CopyBox in = box, out = box;
    in.to = read->data(), in.to_pitch = box.width;
    out.from = read->data(), out.from_pitch = box.width;
    move(in);
    do_or_record(stream, [this, out, read] { move(out); });
  }
  void zero(void* to, int64_t bytes, void* stream) override {
    do_or_record(stream, [this, to, bytes] {
      const Arena::Open open(arena_);
      std::memset(to, 0, static_cast<size_t>(bytes));
    });
  }
  void synchronise(void* stream) override {
    if (stream) static_cast<EmulatedStream*>(stream)->record()->wait();
  }
  std::shared_ptr<void> make_stream() override { return std::make_shared<EmulatedStream>(); }
  std::shared_ptr<void> record(void* stream) override {
    if (stream) return static_cast<EmulatedStream*>(stream)->record();
    const auto event = std::make_shared<EmulatedEvent>();  // the work is done when submitted
    event->reach();
    return event;
  }
  void wait(void* stream, void* event) override {
    do_or_record(stream,
                 [of = static_cast<EmulatedEvent*>(event)->shared_from_this()] { of->wait(); });
  }
  void spare(int multiprocessors) override {
    spared_now = multiprocessors;
    if (multiprocessors > 0) spared_most = multiprocessors;
  }
  bool done(void* event) override { return static_cast<EmulatedEvent*>(event)->reached(); }
  void* begin_recording() override { return start_recording(); }
  std::unique_ptr<tensor::DeviceGraph> end_recording(void* stream) override {
    return std::make_unique<EmulatedGraph>(stop_recording(stream));
  }
  Arena& arena() { return arena_; }

 private:
  void move(const CopyBox& box) {
    const Arena::Open open(arena_);
    for (int64_t row = 0; row < box.rows; ++row)
      std::memmove(static_cast<std::byte*>(box.to) + row * box.to_pitch,
                   static_cast<const std::byte*>(box.from) + row * box.from_pitch,
                   static_cast<size_t>(box.width));
  }
  Arena arena_;
  mutable std::mutex mutex_;
  std::map<int64_t, int64_t> holes_, sizes_;
};

}  // namespace

Arena::Arena(int64_t bytes) : bytes_(bytes) {
  void* const mapped = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::runtime_error("no address space for the emulated GPU");
  begin_ = static_cast<std::byte*>(mapped);
}

Arena::~Arena() { ::munmap(begin_, static_cast<size_t>(bytes_)); }

bool Arena::holds(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  return at >= begin_ && at < begin_ + bytes_;
}

Arena::Open::Open(Arena& arena) : arena_(arena) {
  const std::lock_guard lock(opening);
  if (open_count++ == 0)
    ::mprotect(arena_.begin(), static_cast<size_t>(arena_.bytes()), PROT_READ | PROT_WRITE);
}

Arena::Open::~Open() {
  const std::lock_guard lock(opening);
  if (--open_count == 0) ::mprotect(arena_.begin(), static_cast<size_t>(arena_.bytes()), PROT_NONE);
}

EmulatedDevice::EmulatedDevice(int64_t capacity) {
  auto runtime = std::make_shared<EmulatedRuntime>(capacity);
  arena_ = &runtime->arena();
  pool_ = std::make_shared<tensor::DevicePool>(std::move(runtime));
  tensor::use_device(pool_);
  upload_count = download_count = replay_count = 0;
  spared_now = spared_most = 0;
  multiprocessors_now = 100;
}

EmulatedDevice::~EmulatedDevice() { tensor::use_device(nullptr); }

int64_t EmulatedDevice::replays() const { return replay_count; }
void EmulatedDevice::shrink_to(int multiprocessors) { multiprocessors_now = multiprocessors; }
int EmulatedDevice::spared() const { return spared_now; }
int EmulatedDevice::most_spared() const { return spared_most; }
int64_t EmulatedDevice::uploads() const { return upload_count; }
int64_t EmulatedDevice::downloads() const { return download_count; }

void* start_recording() {
  auto list = std::make_shared<Recorded>();
  const std::lock_guard lock(recording);
  return recorded.emplace(list.get(), list).first->first;
}

std::shared_ptr<Recorded> stop_recording(void* stream) {
  const std::lock_guard lock(recording);
  return std::move(recorded.extract(stream).mapped());
}

void do_or_record(void* stream, std::function<void()> work) {
  {
    const std::lock_guard lock(recording);
    if (const auto found = recorded.find(stream); found != recorded.end())
      return found->second->push_back(std::move(work));
  }
  if (stream) return static_cast<EmulatedStream*>(stream)->enqueue(std::move(work));
  work();
}

}  // namespace tessera::device
