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

#include "device/emulated_streams.h"

namespace tessera::device {
namespace {

constexpr int kSuccess = 0, kSystemError = 2, kInvalidArgument = 4;

// What both ends of a communicator share.
struct Pair {
  std::mutex mutex;
  std::condition_variable changed;
  int joined = 0;
  bool aborted = false;
  const void* offered = nullptr;
  size_t bytes = 0;
  int64_t sends = 0;  // begun and not ended
};

struct End {
  std::shared_ptr<Pair> pair;
};

struct World {
  Arena* arena = nullptr;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Pair>> pairs;
  std::set<End*> ends;
  int64_t ids = 0;
  std::atomic<int64_t> transfers{0}, misuses{0};
  std::atomic<int64_t> most{0};
  std::atomic<bool> stalled{false};
  std::atomic<int> reported{0};
};
World* world = nullptr;

// The pair of an end that lives, or null.
std::shared_ptr<Pair> pair_of(void* comm) {
  const std::lock_guard lock(world->mutex);
  const auto found = world->ends.find(static_cast<End*>(comm));
  if (found != world->ends.end()) return (*found)->pair;
  ++world->misuses;
  return nullptr;
}

int get_unique_id(comm::nccl::UniqueId* id) {
  const std::lock_guard lock(world->mutex);
  std::memset(id->bytes, 0, sizeof id->bytes);
  const std::string text = "id" + std::to_string(++world->ids);
  std::memcpy(id->bytes, text.data(), text.size());
  return kSuccess;
}

int init_rank(void** comm, int ranks, comm::nccl::UniqueId id, int rank) {
  if (ranks != 2 || rank < 0 || rank > 1) return kInvalidArgument;
  auto end = std::make_unique<End>();
  {
    const std::lock_guard lock(world->mutex);
    auto& pair = world->pairs[std::string(id.bytes, sizeof id.bytes)];
    if (!pair) pair = std::make_shared<Pair>();
    end->pair = pair;
  }
  Pair& pair = *end->pair;
  std::unique_lock lock(pair.mutex);
  ++pair.joined;
  pair.changed.notify_all();
  if (!pair.changed.wait_for(lock, std::chrono::seconds(30), [&] { return pair.joined == 2; }))
    return kSystemError;
  const std::lock_guard all(world->mutex);
  world->ends.insert(end.get());
  *comm = end.release();
  return kSuccess;
}

int send(const void* from, size_t count, int, int, void* comm, void* stream) {
  const auto pair = pair_of(comm);
  if (!pair || !from || count == 0 || !world->arena->holds(from)) return kInvalidArgument;
  {
    const std::lock_guard lock(pair->mutex);
    const std::lock_guard all(world->mutex);
    world->most = std::max(world->most.load(), ++pair->sends);
  }
  static_cast<EmulatedStream*>(stream)->enqueue([=] {
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
  return kSuccess;
}

int receive(void* to, size_t count, int, int, void* comm, void* stream) {
  const auto pair = pair_of(comm);
  if (!pair || !to || count == 0 || !world->arena->holds(to)) return kInvalidArgument;
  static_cast<EmulatedStream*>(stream)->enqueue([=] {
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
  return kSuccess;
}

int abort_end(void* comm) {
  const auto pair = pair_of(comm);
  if (!pair) return kInvalidArgument;
  {
    const std::lock_guard lock(pair->mutex);
    pair->aborted = true;
  }
  pair->changed.notify_all();
  const std::lock_guard lock(world->mutex);
  auto* const end = static_cast<End*>(comm);
  world->ends.erase(end);
  delete end;
  return kSuccess;
}

int async_error(void* comm, int* result) {
  if (!pair_of(comm)) return kInvalidArgument;
  *result = world->reported;
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
  return {get_unique_id, init_rank, send, receive, abort_end, async_error, error_string};
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
