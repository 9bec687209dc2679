#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/registers.h"
#include "kernels/cuda/row_map.h"
#if defined(__CUDACC__)
#include "kernels/cuda/warpgroup.cuh"
#endif

// Whether what is being compiled now can have the instructions of warpgroups. A kernel of theirs
// ends in a trap where it cannot: none may leave what it was to write as it was.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(TESSERA_EMULATED_DEVICE)
#define TESSERA_WARPGROUPS 1
#else
#define TESSERA_WARPGROUPS 0
#endif

// How kernels for Hopper divide their work: two warpgroups compute, a third fetches.
namespace tessera::kernels::cuda {

constexpr int kComputing = 2 * kGroup, kComputingWarps = kComputing / kWarp;
constexpr int kSm90Threads = 3 * kGroup;
constexpr int kMostShared = 227 * 1024;  // bytes of a block of threads

/// The first multiple of 1,024 from `memory` on: swizzled tiles lie at such addresses.
__device__ inline unsigned char* tiles_from(unsigned char* memory) {
  return memory + (1024 - shared_address(memory) % 1024) % 1024;
}

/// A warp has read what a barrier guards.
__device__ inline void leave(uint64_t* empty) {
  __syncwarp();
  if (threadIdx.x % kWarp == 0) barrier_arrive(empty);
}

/// The warpgroup of a computing thread: of the first lane, so that the compiler knows that a warp
/// stays together.
__device__ inline int own_group() {
  return __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x) / kGroup, 0);
}

/// Computing warpgroups take turns in a ring; each turn is passed once it was taken, and the last
/// one that is left over is taken as well.
__device__ inline void take_turn(int group) { wait_for_threads(2 + group, 2 * kGroup); }
template <int Groups>
__device__ inline void pass_turn(int group) {
  arrive_for_threads(group + 1 < Groups ? 3 + group : 2, 2 * kGroup);
}

constexpr int kBeside = kGroup - kWarp;

/// Runs fetch() in one thread of the last warpgroup, which has so many registers, beside(thread) in
/// the kBeside threads of its other warps, compute() in the `Groups` before it.
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
