#pragma once

#include "kernels/cuda/instructions.cuh"
#include "kernels/cuda/row_map.h"

// Instructions of sm_90a only: barriers that count bytes, boxes fetched by the copy engine, and
// asynchronous products of a warpgroup (128 threads). Tests that run kernels on the CPU define the
// same functions (tests/kernels/cuda/emulated_warpgroup.h).
namespace tessera::kernels::cuda {

/// Initialises a barrier in shared memory: a phase ends after `arrivals` arrivals and all expected
/// bytes.
__device__ inline void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
/// Makes barriers visible to the copy engine; must be followed by a block barrier.
__device__ inline void barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ inline void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
/// Arrives, and adds `bytes` to the expected bytes of the phase.
__device__ inline void barrier_expect(uint64_t* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
/// Waits for the end of the phase with this parity; for a new barrier, parity 1 has ended.
__device__ inline void barrier_wait(uint64_t* barrier, int parity) {
  uint32_t complete = 0;
  while (!complete)
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(complete)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
}

/// Before the first box of a map in global memory, which a copy from the host wrote.
__device__ inline void acquire_map(const RowMap& map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(&map) : "memory");
}

/// Fetches 64 channels of a head from the map's rows to rows of 128 bytes, with 16-byte words
/// exchanged by row (128B swizzle), or from a byte_map() to plain rows of 64; zeros outside the
/// map.
__device__ inline void load_box(void* to, const RowMap& map, uint64_t* barrier, int channel,
                                int head, int64_t row) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(channel), "r"(head), "r"(static_cast<int>(row))
      : "memory");
}

/// Same for an image_map(): 64 channels of a box of pixels with first pixel (x, y); zeros outside
/// the image.
__device__ inline void load_image_box(void* to, const RowMap& map, uint64_t* barrier, int channel,
                                      int x, int y, int image) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(barrier)), "r"(channel), "r"(x), "r"(y), "r"(image)
      : "memory");
}

/// Makes the threads' writes to shared memory visible to later products and copies.
__device__ inline void fence_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/// Before boxes of rows that threads of the running kernel wrote, behind the wait for them.
__device__ inline void fence_rows() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
/// load_box() of such rows.
__device__ inline void load_written_box(void* to, const RowMap& map, uint64_t* barrier, int channel,
                                        int64_t row) {
  load_box(to, map, barrier, channel, 0, row);
}
/// Waits for `threads` threads, a multiple of 32, at the same named barrier of the block.
__device__ inline void wait_for_threads(int name, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}
/// Arrives at a named barrier without waiting.
__device__ inline void arrive_for_threads(int name, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}
/// Changes the number of registers for each thread of this warpgroup.
template <int Count>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

/// Descriptor of a tile of rows of 128 swizzled bytes at `tile`; `leading`: bytes from 64 columns
/// to the next, for a transposed tile; eight rows are 1,024 bytes.
__device__ inline uint64_t tile_descriptor(const void* tile, int leading) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kEightRows = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kEightRows | uint64_t(static_cast<uint32_t>(leading) >> 4) << 16 |
         (shared_address(tile) & 0x3ffff) >> 4;
}

/// Required before the first product that reads newly written registers.
__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `Left` committed groups of products are in flight; `d` may be read only
/// afterwards.
template <int Left, int M>
__device__ inline void products_wait(float (&d)[M][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
  TESSERA_UNROLL
  for (int j = 0; j < M; ++j) TESSERA_UNROLL
  for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(d[j][i])::"memory");
}

/// products_wait<0>(d), but not before `sum`, a nonnegative value, is known: ptxas hoists a wait
/// above all arithmetic, and work meant to overlap with the products would run after them.
template <int M>
__device__ inline void products_wait_behind(float (&d)[M][4], float sum) {
  asm volatile(
      "{ .reg .pred never; setp.lt.f32 never, %0, 0f00000000; @never nanosleep.u32 32; }" ::"f"(sum)
      : "memory");
  products_wait<0>(d);
}

/// Same for products whose sums are not read yet.
template <int Left>
__device__ inline void products_leave() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}

/// d = a b^T (+ d) for a warpgroup: a [64, 16] and b [N, 16] in tiles, d [64, N] in registers: rows
/// 16 w ... of warp w, in the layout of multiply_bf16(), eight columns in each d[j].
template <int N>
__device__ void multiply_shared(float (&d)[N / 8][4], uint64_t a, uint64_t b, bool add);
template <>
__device__ inline void multiply_shared<64>(float (&d)[8][4], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{ .reg .pred add; setp.ne.b32 add, %34, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, "
      "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, add, 1, 1, 0, 0; }"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
        "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
        "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
        "+f"(d[7][2]), "+f"(d[7][3])
      : "l"(a), "l"(b), "r"(int{add}));
}
template <>
__device__ inline void multiply_shared<128>(float (&d)[16][4], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{ .reg .pred add; setp.ne.b32 add, %66, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, "
      "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, add, 1, 1, 0, 0; }"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
        "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
        "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
        "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
        "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]), "+f"(d[10][1]),
        "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]),
        "+f"(d[11][3]), "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]),
        "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]), "+f"(d[14][0]),
        "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[15][0]), "+f"(d[15][1]),
        "+f"(d[15][2]), "+f"(d[15][3])
      : "l"(a), "l"(b), "r"(int{add}));
}
template <>
__device__ inline void multiply_shared<192>(float (&d)[24][4], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{ .reg .pred add; setp.ne.b32 add, %98, 0; "
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, "
      "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, "
      "%28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
      "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "
      "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "
      "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
      "%96, %97, add, 1, 1, 0, 0; }"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
        "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
        "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
        "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
        "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]), "+f"(d[10][1]),
        "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]),
        "+f"(d[11][3]), "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]),
        "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]), "+f"(d[14][0]),
        "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[15][0]), "+f"(d[15][1]),
        "+f"(d[15][2]), "+f"(d[15][3]), "+f"(d[16][0]), "+f"(d[16][1]), "+f"(d[16][2]),
        "+f"(d[16][3]), "+f"(d[17][0]), "+f"(d[17][1]), "+f"(d[17][2]), "+f"(d[17][3]),
        "+f"(d[18][0]), "+f"(d[18][1]), "+f"(d[18][2]), "+f"(d[18][3]), "+f"(d[19][0]),
        "+f"(d[19][1]), "+f"(d[19][2]), "+f"(d[19][3]), "+f"(d[20][0]), "+f"(d[20][1]),
        "+f"(d[20][2]), "+f"(d[20][3]), "+f"(d[21][0]), "+f"(d[21][1]), "+f"(d[21][2]),
        "+f"(d[21][3]), "+f"(d[22][0]), "+f"(d[22][1]), "+f"(d[22][2]), "+f"(d[22][3]),
        "+f"(d[23][0]), "+f"(d[23][1]), "+f"(d[23][2]), "+f"(d[23][3])
      : "l"(a), "l"(b), "r"(int{add}));
}
template <>
__device__ inline void multiply_shared<256>(float (&d)[32][4], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{ .reg .pred add; setp.ne.b32 add, %130, 0; "
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, "
      "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "
      "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, "
      "%88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, "
      "%104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, "
      "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, add, 1, 1, "
      "0, 0; }"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
        "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
        "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
        "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
        "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]), "+f"(d[10][1]),
        "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]),
        "+f"(d[11][3]), "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]),
        "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]), "+f"(d[14][0]),
        "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[15][0]), "+f"(d[15][1]),
        "+f"(d[15][2]), "+f"(d[15][3]), "+f"(d[16][0]), "+f"(d[16][1]), "+f"(d[16][2]),
        "+f"(d[16][3]), "+f"(d[17][0]), "+f"(d[17][1]), "+f"(d[17][2]), "+f"(d[17][3]),
        "+f"(d[18][0]), "+f"(d[18][1]), "+f"(d[18][2]), "+f"(d[18][3]), "+f"(d[19][0]),
        "+f"(d[19][1]), "+f"(d[19][2]), "+f"(d[19][3]), "+f"(d[20][0]), "+f"(d[20][1]),
        "+f"(d[20][2]), "+f"(d[20][3]), "+f"(d[21][0]), "+f"(d[21][1]), "+f"(d[21][2]),
        "+f"(d[21][3]), "+f"(d[22][0]), "+f"(d[22][1]), "+f"(d[22][2]), "+f"(d[22][3]),
        "+f"(d[23][0]), "+f"(d[23][1]), "+f"(d[23][2]), "+f"(d[23][3]), "+f"(d[24][0]),
        "+f"(d[24][1]), "+f"(d[24][2]), "+f"(d[24][3]), "+f"(d[25][0]), "+f"(d[25][1]),
        "+f"(d[25][2]), "+f"(d[25][3]), "+f"(d[26][0]), "+f"(d[26][1]), "+f"(d[26][2]),
        "+f"(d[26][3]), "+f"(d[27][0]), "+f"(d[27][1]), "+f"(d[27][2]), "+f"(d[27][3]),
        "+f"(d[28][0]), "+f"(d[28][1]), "+f"(d[28][2]), "+f"(d[28][3]), "+f"(d[29][0]),
        "+f"(d[29][1]), "+f"(d[29][2]), "+f"(d[29][3]), "+f"(d[30][0]), "+f"(d[30][1]),
        "+f"(d[30][2]), "+f"(d[30][3]), "+f"(d[31][0]), "+f"(d[31][1]), "+f"(d[31][2]),
        "+f"(d[31][3])
      : "l"(a), "l"(b), "r"(int{add}));
}
/// multiply_shared<128>() in f16.
__device__ inline void multiply_shared_f16(float (&d)[16][4], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{ .reg .pred add; setp.ne.b32 add, %66, 0; "
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, "
      "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
      "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
      "%56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, add, 1, 1, 0, 0; }"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),
        "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),
        "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
        "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]),
        "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]), "+f"(d[10][1]),
        "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]),
        "+f"(d[11][3]), "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]),
        "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]), "+f"(d[14][0]),
        "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[15][0]), "+f"(d[15][1]),
        "+f"(d[15][2]), "+f"(d[15][3])
      : "l"(a), "l"(b), "r"(int{add}));
}
/// d[Offset ...] += a b, with a [64, 16] in registers in the layout of multiply_bf16(), warp by
/// warp, and b [16, N] read transposed from the tile.
template <int N, int Offset, int M>
__device__ inline void multiply_registers(float (&d)[M][4], const uint32_t (&a)[4], uint64_t b) {
  static_assert(N == 64 || N == 128);  // whole tiles, see Sm90Tile
  if constexpr (N == 64)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, "
        "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
        : "+f"(d[Offset + 0][0]), "+f"(d[Offset + 0][1]), "+f"(d[Offset + 0][2]),
          "+f"(d[Offset + 0][3]), "+f"(d[Offset + 1][0]), "+f"(d[Offset + 1][1]),
          "+f"(d[Offset + 1][2]), "+f"(d[Offset + 1][3]), "+f"(d[Offset + 2][0]),
          "+f"(d[Offset + 2][1]), "+f"(d[Offset + 2][2]), "+f"(d[Offset + 2][3]),
          "+f"(d[Offset + 3][0]), "+f"(d[Offset + 3][1]), "+f"(d[Offset + 3][2]),
          "+f"(d[Offset + 3][3]), "+f"(d[Offset + 4][0]), "+f"(d[Offset + 4][1]),
          "+f"(d[Offset + 4][2]), "+f"(d[Offset + 4][3]), "+f"(d[Offset + 5][0]),
          "+f"(d[Offset + 5][1]), "+f"(d[Offset + 5][2]), "+f"(d[Offset + 5][3]),
          "+f"(d[Offset + 6][0]), "+f"(d[Offset + 6][1]), "+f"(d[Offset + 6][2]),
          "+f"(d[Offset + 6][3]), "+f"(d[Offset + 7][0]), "+f"(d[Offset + 7][1]),
          "+f"(d[Offset + 7][2]), "+f"(d[Offset + 7][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
  if constexpr (N == 128)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, "
        "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "
        "%56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
        : "+f"(d[Offset + 0][0]), "+f"(d[Offset + 0][1]), "+f"(d[Offset + 0][2]),
          "+f"(d[Offset + 0][3]), "+f"(d[Offset + 1][0]), "+f"(d[Offset + 1][1]),
          "+f"(d[Offset + 1][2]), "+f"(d[Offset + 1][3]), "+f"(d[Offset + 2][0]),
          "+f"(d[Offset + 2][1]), "+f"(d[Offset + 2][2]), "+f"(d[Offset + 2][3]),
          "+f"(d[Offset + 3][0]), "+f"(d[Offset + 3][1]), "+f"(d[Offset + 3][2]),
          "+f"(d[Offset + 3][3]), "+f"(d[Offset + 4][0]), "+f"(d[Offset + 4][1]),
          "+f"(d[Offset + 4][2]), "+f"(d[Offset + 4][3]), "+f"(d[Offset + 5][0]),
          "+f"(d[Offset + 5][1]), "+f"(d[Offset + 5][2]), "+f"(d[Offset + 5][3]),
          "+f"(d[Offset + 6][0]), "+f"(d[Offset + 6][1]), "+f"(d[Offset + 6][2]),
          "+f"(d[Offset + 6][3]), "+f"(d[Offset + 7][0]), "+f"(d[Offset + 7][1]),
          "+f"(d[Offset + 7][2]), "+f"(d[Offset + 7][3]), "+f"(d[Offset + 8][0]),
          "+f"(d[Offset + 8][1]), "+f"(d[Offset + 8][2]), "+f"(d[Offset + 8][3]),
          "+f"(d[Offset + 9][0]), "+f"(d[Offset + 9][1]), "+f"(d[Offset + 9][2]),
          "+f"(d[Offset + 9][3]), "+f"(d[Offset + 10][0]), "+f"(d[Offset + 10][1]),
          "+f"(d[Offset + 10][2]), "+f"(d[Offset + 10][3]), "+f"(d[Offset + 11][0]),
          "+f"(d[Offset + 11][1]), "+f"(d[Offset + 11][2]), "+f"(d[Offset + 11][3]),
          "+f"(d[Offset + 12][0]), "+f"(d[Offset + 12][1]), "+f"(d[Offset + 12][2]),
          "+f"(d[Offset + 12][3]), "+f"(d[Offset + 13][0]), "+f"(d[Offset + 13][1]),
          "+f"(d[Offset + 13][2]), "+f"(d[Offset + 13][3]), "+f"(d[Offset + 14][0]),
          "+f"(d[Offset + 14][1]), "+f"(d[Offset + 14][2]), "+f"(d[Offset + 14][3]),
          "+f"(d[Offset + 15][0]), "+f"(d[Offset + 15][1]), "+f"(d[Offset + 15][2]),
          "+f"(d[Offset + 15][3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

}  // namespace tessera::kernels::cuda
