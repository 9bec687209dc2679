#pragma once

#if defined(__CUDACC__)
#include <cstdint>

// Words shared by blocks of a kernel and by GPUs. Tests on the CPU define the same functions
// (tests/kernels/cuda/emulation.h), with late visibility of stores.
namespace tessera::kernels::cuda {

/// Loads a word; after acquire_words(), all stores before its store_release() are visible.
__device__ inline uint64_t load_word(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ inline void acquire_words() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
__device__ inline uint64_t load_acquire(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
/// Stores a word behind all earlier stores of this thread, and of others before a block barrier.
__device__ inline void store_release(uint64_t* word, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
/// Stores a word without order; for tests.
__device__ inline void store_unordered(uint64_t* word, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
/// Stores 16 bytes into memory of any GPU.
__device__ inline void put_16(void* to, uint4 value) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}
/// Posts a word in shared memory for other warps of the block, behind all that this thread knows.
__device__ inline void post_word(uint64_t* shared, uint64_t value) {
  asm volatile("st.release.cta.u64 [%0], %1;" ::"l"(shared), "l"(value) : "memory");
}
__device__ inline uint64_t posted_word(const uint64_t* shared) {
  uint64_t value;
  asm volatile("ld.acquire.cta.u64 %0, [%1];" : "=l"(value) : "l"(shared) : "memory");
  return value;
}
/// A turn of a wait.
__device__ inline void pause() { __nanosleep(100); }

}  // namespace tessera::kernels::cuda
#endif
