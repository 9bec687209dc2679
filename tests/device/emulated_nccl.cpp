#include "device/emulated_nccl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/emulated_streams.h"

namespace tessera::device {
namespace {

constexpr int kSuccess = 0, kSystemError = 2, kInvalidArgument = 4;

// State shared by both ends of a communicator.
struct Pair {
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;
  bool aborted = false;
  const void* offered = nullptr;
  size_t bytes = 0;
  int64_t sends = 0;  // begun and not ended
};

// Running kernels of a rank's GPU.
struct Running {
  std::mutex mutex;
  std::condition_variable changed;
  int kernels = 0;
};

struct End {
  std::shared_ptr<Pair> pair;
  std::shared_ptr<Running> gpu;
  std::atomic<bool> working{false};  // a call continues in the background
  std::atomic<int> calls{0};
};

class Kernel {
 public:
  explicit Kernel(std::shared_ptr<Running> gpu) : gpu_(std::move(gpu)) {
    const std::lock_guard lock(gpu_->mutex);
    ++gpu_->kernels;
  }
  ~Kernel() {
    const std::lock_guard lock(gpu_->mutex);
    --gpu_->kernels;
    gpu_->changed.notify_all();
  }

 private:
  const std::shared_ptr<Running> gpu_;
};

struct World {
  Arena* arena = nullptr;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Pair>> pairs;
  std::set<End*> ends;
  std::map<std::thread::id, std::shared_ptr<Running>>
      gpus;  // ranks are the threads that open links
  int64_t ids = 0;
  std::atomic<int64_t> transfers{0}, misuses{0};
  std::atomic<int64_t> most{0};
  std::atomic<bool> stalled{false};
  std::atomic<int> reported{0};
};
World* world = nullptr;

// A live end, or null.
End* end_of(void* comm) {
  const std::lock_guard lock(world->mutex);
  const auto found = world->ends.find(static_cast<End*>(comm));
  if (found != world->ends.end()) return *found;
  ++world->misuses;
  return nullptr;
}

bool open(Pair& pair) {
  const std::lock_guard lock(pair.mutex);
  return pair.joined == 2;
}

// An end that may move data now, or null.
End* ready_end(void* comm) {
  End* const end = end_of(comm);
  if (end && (!open(*end->pair) || end->working)) {
    ++world->misuses;
    return nullptr;
  }
  return end;
}

// Every third call continues in the background.
int started(End& end) {
  end.working = ++end.calls % 3 == 0;
  return end.working ? comm::nccl::kInProgress : kSuccess;
}

int get_unique_id(comm::nccl::UniqueId* id) {
  const std::lock_guard lock(world->mutex);
  std::memset(id->bytes, 0, sizeof id->bytes);
  const std::string text = "id" + std::to_string(++world->ids);
  std::memcpy(id->bytes, text.data(), text.size());
  return kSuccess;
}

int init_rank(void** comm, int ranks, comm::nccl::UniqueId id, int rank,
              comm::nccl::Config* config) {
  if (ranks != 2 || rank < 0 || rank > 1 || config->blocking != 0) return kInvalidArgument;
  auto end = std::make_unique<End>();
  {
    const std::lock_guard all(world->mutex);
    auto& pair = world->pairs[std::string(id.bytes, sizeof id.bytes)];
    if (!pair) pair = std::make_shared<Pair>();
    auto& gpu = world->gpus[std::this_thread::get_id()];
    if (!gpu) gpu = std::make_shared<Running>();
    end->pair = pair;
    end->gpu = gpu;
    world->ends.insert(end.get());
  }
  {
    const std::lock_guard lock(end->pair->mutex);
    ++end->pair->joined;
  }
  *comm = end.release();
  return comm::nccl::kInProgress;
}

int send(const void* from, size_t count, int, int, void* comm, void* stream) {
  End* const end = ready_end(comm);
  if (!end || !from || count == 0 || !world->arena->holds(from)) return kInvalidArgument;
  const auto pair = end->pair;
  {
    const std::lock_guard lock(pair->mutex);
    const std::lock_guard all(world->mutex);
    world->most = std::max(world->most.load(), ++pair->sends);
  }
  static_cast<EmulatedStream*>(stream)->enqueue([pair, gpu = end->gpu, from, count] {
    const Kernel kernel(gpu);
    std::unique_lock lock(pair->mutex);
    if (!world->stalled) {
      pair->offered = from;
      pair->bytes = count;
      pair->changed.notify_all();
    }
    pair->changed.wait(
        lock, [&] { return pair->aborted || (!world->stalled && pair->offered == nullptr); });
    --pair->sends;
  });
  return started(*end);
}

int receive(void* to, size_t count, int, int, void* comm, void* stream) {
  End* const end = ready_end(comm);
  if (!end || !to || count == 0 || !world->arena->holds(to)) return kInvalidArgument;
  static_cast<EmulatedStream*>(stream)->enqueue([pair = end->pair, gpu = end->gpu, to, count] {
    const Kernel kernel(gpu);
    std::unique_lock lock(pair->mutex);
    pair->changed.wait(lock, [&] { return pair->aborted || pair->offered != nullptr; });
    if (pair->aborted) return;
    if (pair->bytes != count) ++world->misuses;
    {
      const Arena::Open open(*world->arena);
      std::memcpy(to, pair->offered, std::min(count, pair->bytes));
    }
    pair->offered = nullptr;
    ++world->transfers;
    pair->changed.notify_all();
  });
  return started(*end);
}

// Aborts of a group, by the thread that began the group.
thread_local bool grouped = false;
thread_local std::vector<End*> group;

// An abort ends the kernels of its own links and waits until no kernel runs on the GPU, because
// freeing memory waits for all of them.
void abort_together(const std::vector<End*>& ends) {
  for (const End* end : ends) {
    {
      const std::lock_guard lock(end->pair->mutex);
      end->pair->aborted = true;
    }
    end->pair->changed.notify_all();
  }
  for (End* end : ends) {
    {
      std::unique_lock lock(end->gpu->mutex);
      if (!end->gpu->changed.wait_for(lock, std::chrono::seconds(5),
                                      [&] { return end->gpu->kernels == 0; }))
        ++world->misuses;  // a real call would have hung
    }
    const std::lock_guard lock(world->mutex);
    world->ends.erase(end);
    delete end;
  }
}

int group_start() {
  grouped = true;
  return kSuccess;
}

int group_end() {
  grouped = false;
  abort_together(std::exchange(group, {}));
  return kSuccess;
}

int abort_end(void* comm) {
  End* const end = end_of(comm);
  if (!end) return kInvalidArgument;
  if (grouped)
    group.push_back(end);
  else
    abort_together({end});
  return kSuccess;
}

int async_error(void* comm, int* result) {
  End* const end = end_of(comm);
  if (!end) return kInvalidArgument;
  if (!open(*end->pair) || end->working.exchange(false))
    *result = comm::nccl::kInProgress;
  else
    *result = world->reported;
  return kSuccess;
}

int version(int* version) {
  *version = 22200;
  return kSuccess;
}

const char* error_string(int result) { return result == kSuccess ? "no error" : "emulated error"; }

}  // namespace

EmulatedNccl::EmulatedNccl(EmulatedDevice& device) {
  world = new World;
  world->arena = &device.arena();
}

EmulatedNccl::~EmulatedNccl() {
  delete world;
  world = nullptr;
}

comm::nccl::Functions EmulatedNccl::functions() {
  return {get_unique_id, init_rank, send,        receive,      group_start,
          group_end,     abort_end, async_error, error_string, version};
}

void EmulatedNccl::stall() { world->stalled = true; }
void EmulatedNccl::report(int result) { world->reported = result; }
int64_t EmulatedNccl::transfers() const { return world->transfers; }
int64_t EmulatedNccl::open_ends() const {
  const std::lock_guard lock(world->mutex);
  return static_cast<int64_t>(world->ends.size());
}
int64_t EmulatedNccl::most_under_way() const { return world->most; }
int64_t EmulatedNccl::misuses() const { return world->misuses; }

}  // namespace tessera::device
