#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#define TESSERA_UNROLL _Pragma("unroll")
#define TESSERA_KEEP_ROLLED _Pragma("unroll 1")
#define TESSERA_UNROLL_SOME _Pragma("unroll 2")

// Thin wrappers around instructions without a C++ equivalent. Tests that run kernels on the CPU
// define the same functions in plain C++ (tests/kernels/cuda/emulation.h).
namespace tessera::kernels::cuda {

__device__ inline float half_bits_to_float(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ inline uint16_t float_to_half_bits(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
__device__ inline uint16_t float_to_bf16_bits(float value) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
/// 2^x within two units in the last place; 0 for subnormal results.
__device__ inline float exp2_of(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}
/// 1 / x within a unit in the last place.
__device__ inline float reciprocal_of(float x) {
  float value;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}
/// First instructions of a kernel launched `early`: lets the next kernel start, and waits until all
/// earlier work of the stream has ended and is visible.
__device__ inline void after_those_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Two bf16 in a word, `low` in the lower half.
__device__ inline uint32_t pack_bf16(float low, float high) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

__device__ inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

/// Stores 16 bytes in shared memory. Tiles read by products must be written only with this
/// function, so that tests can track each writer.
__device__ inline void store_shared(void* shared, uint4 word) {
  *static_cast<uint4*>(shared) = word;
}

/// Copies 16 bytes to shared memory asynchronously, or zeros if not `valid`; both addresses are
/// multiples of 16. Visible after cp_async_wait and a barrier.
__device__ inline void cp_async_16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `Left` of this thread's committed groups are in flight.
template <int Left>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}

/// Four 8 x 8 matrices of 16-bit elements: lane i names row i % 8 of matrix i / 8 (16 bytes); lane
/// i gets elements 2 * (i % 4) and the next from row i / 4 of each matrix.
__device__ inline void load_matrices(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}
/// Same for transposed matrices: lane i gets rows 2 * (i % 4) and the next from column i / 4.
__device__ inline void load_matrices_transposed(uint32_t (&out)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(shared_address(row))
               : "memory");
}

/// d += a b for a warp, a [16, 16] and b [16, 8] in bf16, d [16, 8] in f32. With g = lane / 4 and t
/// = lane % 4: a holds (row, columns) (g, 2t..), (g + 8, 2t..), (g, 2t + 8..), (g + 8, 2t + 8..); b
/// holds (rows, column) (2t.., g), (2t + 8.., g); d holds (g, 2t..) and (g + 8, 2t..).
__device__ inline void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                     uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Same in f16.
__device__ inline void multiply_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The block's dynamic shared memory.
__device__ inline unsigned char* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char tessera_dynamic_shared[];
  return tessera_dynamic_shared;
}

}  // namespace tessera::kernels::cuda
