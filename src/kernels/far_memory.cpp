#include "kernels/far_memory.h"

#include "base/fail.h"
#if defined(TESSERA_NVSHMEM)
#include <cuda_runtime_api.h>
#include <nvshmem.h>
#include <nvshmemx.h>

#include <cstring>
#include <mutex>

#include "tensor/device_pool.h"
#endif

namespace tessera::kernels {

#if defined(TESSERA_NVSHMEM)
namespace {

// A part of the heap of NVSHMEM, in use or kept.
struct Block {
  int64_t bytes = 0;
  std::byte* memory = nullptr;
  bool used = false;
};

// NVSHMEM of this process.
struct Opened {
  std::mutex mutex;
  std::vector<int> members;  // in the world; empty: not open
  std::vector<Block> blocks;
};
Opened& opened() {
  static Opened state;
  return state;
}

void check(int status, const char* call) {
  require(status == 0, ErrorCode::rank,
          "{} of NVSHMEM fails with {}; NVSHMEM_DEBUG=INFO tells why, or use moe=bulk", call,
          status);
}
void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // prevents the next call from reporting the error too
  fail(ErrorCode::rank, "the GPU failed in {}: {}", call, cudaGetErrorString(status));
}

// The kernel reads rows behind a flag that a network card wrote behind them.
void require_ordered_writes() {
  int device = 0, ordering = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&ordering, cudaDevAttrGPUDirectRDMAWritesOrdering, device),
        "cudaDeviceGetAttribute");
  require(ordering >= cudaGPUDirectRDMAWritesOrderingOwner, ErrorCode::plan,
          "this GPU does not order the writes of network cards; use moe=bulk");
}

}  // namespace

bool has_far_memory() { return true; }

FarJoin begin_far_memory(const FarRanks& ranks) {
  tensor::device_pool()->runtime().enter();
  require_ordered_writes();
  Opened& state = opened();
  const std::lock_guard lock(state.mutex);
  require(
      state.members.empty() || state.members == ranks.members, ErrorCode::plan,
      "NVSHMEM was opened by this process for other ranks; start processes for this plan alone, "
      "or use moe=bulk");
  FarJoin join{};
  if (ranks.rank != 0 || !state.members.empty()) return join;
  nvshmemx_uniqueid_t id = NVSHMEMX_UNIQUEID_INITIALIZER;
  check(nvshmemx_get_uniqueid(&id), "nvshmemx_get_uniqueid");
  static_assert(sizeof id == sizeof join);
  std::memcpy(join.data(), &id, sizeof id);
  return join;
}

// nvshmemx_init_attr() would end the process at an error.
void join_far_memory(const FarRanks& ranks, const FarJoin& join) {
  Opened& state = opened();
  const std::lock_guard lock(state.mutex);
  if (!state.members.empty()) return;
  nvshmemx_uniqueid_t id;
  std::memcpy(&id, join.data(), sizeof id);
  nvshmemx_init_attr_t attributes = NVSHMEMX_INIT_ATTR_INITIALIZER;
  check(nvshmemx_set_attr_uniqueid_args(ranks.rank, static_cast<int>(ranks.members.size()), &id,
                                        &attributes),
        "nvshmemx_set_attr_uniqueid_args");
  int provided = 0;
  const nvshmemi_version_t version = {NVSHMEM_VENDOR_MAJOR_VERSION, NVSHMEM_VENDOR_MINOR_VERSION,
                                      NVSHMEM_VENDOR_PATCH_VERSION};
  check(nvshmemi_init_thread(NVSHMEM_THREAD_SERIALIZED, &provided, NVSHMEMX_INIT_WITH_UNIQUEID,
                             &attributes, version),
        "nvshmemi_init_thread");
  state.members = ranks.members;
}

int64_t next_far_block(int64_t bytes) {
  Opened& state = opened();
  const std::lock_guard lock(state.mutex);
  size_t block = 0;
  while (block < state.blocks.size() &&
         (state.blocks[block].used || state.blocks[block].bytes != bytes))
    ++block;
  return static_cast<int64_t>(block);
}

FarMemory allocate_far_memory(int64_t number, int64_t bytes) {
  Opened& state = opened();
  const std::lock_guard lock(state.mutex);
  nvshmem_quiet();  // puts of an earlier use
  const auto at = static_cast<size_t>(number);
  if (at == state.blocks.size()) {
    void* const memory = nvshmem_malloc(static_cast<size_t>(bytes));
    require(memory != nullptr, ErrorCode::memory,
            "NVSHMEM has no {} bytes; set NVSHMEM_SYMMETRIC_SIZE, or use moe=bulk", bytes);
    state.blocks.push_back({bytes, static_cast<std::byte*>(memory), false});
  }
  Block& block = state.blocks.at(at);
  check(cudaMemset(block.memory, 0, static_cast<size_t>(bytes)), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  block.used = true;
  FarMemory memory;
  memory.own = std::shared_ptr<std::byte>(block.memory, [at](std::byte*) {
    Opened& now = opened();
    const std::lock_guard giving_back(now.mutex);
    now.blocks[at].used = false;
  });
  const int own = nvshmem_my_pe();
  for (int pe = 0; pe < nvshmem_n_pes(); ++pe)
    memory.addresses.push_back(pe == own ? block.memory
                                         : static_cast<std::byte*>(nvshmem_ptr(block.memory, pe)));
  return memory;
}
#else
namespace {
[[noreturn]] void refuse() {
  fail(ErrorCode::plan, "this program was built without NVSHMEM; use moe=bulk");
}
}  // namespace

bool has_far_memory() { return false; }
FarJoin begin_far_memory(const FarRanks&) { refuse(); }
void join_far_memory(const FarRanks&, const FarJoin&) { refuse(); }
int64_t next_far_block(int64_t) { refuse(); }
FarMemory allocate_far_memory(int64_t, int64_t) { refuse(); }
#endif

}  // namespace tessera::kernels
