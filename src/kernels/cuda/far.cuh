#pragma once

// Puts into the memory of GPUs on other hosts, by NVSHMEM. Tests on the CPU define the same
// functions (tests/kernels/cuda/emulation.h).
#if defined(TESSERA_NVSHMEM) && defined(__CUDACC__)
#include <nvshmem.h>
#include <nvshmemx.h>

#include <cstddef>
#include <cstdint>

namespace tessera::kernels::cuda {

/// Puts bytes of own symmetric memory, as all threads before the last barrier left them, into a
/// rank's, and then its flag; by one thread, which does not wait. Targets are addresses of own
/// memory, in the place of the rank's.
__device__ inline void put_far(std::byte* to, const std::byte* from, int64_t bytes, uint64_t* flag,
                               uint64_t value, int rank) {
  __threadfence_system();
  nvshmem_putmem_signal_nbi(to, from, static_cast<size_t>(bytes), flag, value, NVSHMEM_SIGNAL_SET,
                            rank);
}
/// The flag alone.
__device__ inline void flag_far(uint64_t* flag, uint64_t value, int rank) {
  nvshmemx_signal_op(flag, value, NVSHMEM_SIGNAL_SET, rank);
}

}  // namespace tessera::kernels::cuda
#endif
