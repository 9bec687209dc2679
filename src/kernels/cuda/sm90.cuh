#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/registers.h"
#include "kernels/cuda/row_map.h"
#if defined(__CUDACC__)
#include "kernels/cuda/warpgroup.cuh"
#endif

// True if the current compilation supports warpgroup instructions. Otherwise such a kernel ends in
// a trap, so that no output is silently left unwritten.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(TESSERA_EMULATED_DEVICE)
#define TESSERA_WARPGROUPS 1
#else
#define TESSERA_WARPGROUPS 0
#endif

// Division of work in Hopper kernels: two warpgroups compute, a third fetches.
namespace tessera::kernels::cuda {

constexpr int kComputing = 2 * kGroup, kComputingWarps = kComputing / kWarp;
constexpr int kSm90Threads = 3 * kGroup;
constexpr int kMostShared = 227 * 1024;  // bytes of a thread block

/// First multiple of 1,024 from `memory` on, the alignment of swizzled tiles.
__device__ inline unsigned char* tiles_from(unsigned char* memory) {
  return memory + (1024 - shared_address(memory) % 1024) % 1024;
}

/// Reports that a warp has read the guarded data.
__device__ inline void leave(uint64_t* empty) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) barrier_arrive(empty);
}

/// Warpgroup of a computing thread, read from the first lane so that the compiler sees a uniform
/// value.
__device__ inline int own_group() {
  return __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroup, 0);
}

/// Computing warpgroups take turns in a ring: each turn taken must be passed on, and the remaining
/// turn at the end must be taken too.
__device__ inline void take_turn(int group) { wait_for_threads(2 + group, 2 * kGroup); }
template <int Groups>
__device__ inline void pass_turn(int group) {
  arrive_for_threads(group + 1 < Groups ? 3 + group : 2, 2 * kGroup);
}

constexpr int kBeside = kGroup - kWarp;

/// Runs fetch() in a single thread of the last warpgroup, limited to `FetchRegisters` registers,
/// beside(thread) in the kBeside threads of its other warps, and compute() in the `Groups`
/// warpgroups before.
template <int FetchRegisters = 24, int Groups = 2, class Fetch, class Compute, class Beside>
__device__ inline void divide(const Fetch& fetch, const Compute& compute, const Beside& beside) {
  constexpr int kFetching = Groups * kGroup;
  __syncthreads();
  if (threadIdx.x >= kFetching) {
    give_registers<FetchRegisters>();
    if (threadIdx.x == kFetching) fetch();
    if (threadIdx.x >= kFetching + kWarp) beside(static_cast<int>(threadIdx.x) - kFetching - kWarp);
  } else {
    take_registers<computing_registers(Groups, FetchRegisters)>();
    compute();
  }
}
template <int FetchRegisters = 24, int Groups = 2, class Fetch, class Compute>
__device__ inline void divide(const Fetch& fetch, const Compute& compute) {
  divide<FetchRegisters, Groups>(fetch, compute, [](int) {});
}

}  // namespace tessera::kernels::cuda
