#pragma once

#include "fused/cuda/work.h"
#include "kernels/cuda/far.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/shared_words.cuh"
#include "kernels/cuda/sm90.cuh"

// Tasks that route and move rows; the working threads of a block share a task.
namespace tessera::fused::cuda {

using kernels::cuda::put_16;

/// A rank of a launch in the view of a block.
struct Seat {
  const Work& w;
  int rank;

  __device__ const RankWork& own() const { return w.ranks[rank]; }
  __device__ const Coordinator& coordinator() const { return *own().coordinator; }
  __device__ Dispatcher dispatcher() const { return {w.layout, rank}; }
  __device__ const int32_t* pairs(const Task& tile) const {
    return own().pairs + own().begins[tile.peer * w.layout.experts + tile.expert] +
           tile.index * w.layout.tiles.tile;
  }
  __device__ int blocks() const { return static_cast<int>((own().tokens + w.block - 1) / w.block); }
  /// Tokens [first, first + count) of a block.
  __device__ int64_t first_token(int block) const { return int64_t{block} * w.block; }
  __device__ int64_t tokens_of(int block) const {
    const int64_t left = own().tokens - first_token(block);
    return left < w.block ? left : w.block;
  }
};

__device__ inline int own_thread() { return static_cast<int>(threadIdx.x); }
/// A barrier of the working threads, without the fetching ones.
__device__ inline void meet() { kernels::cuda::wait_for_threads(1, kThreads); }

/// Copies rows 16 bytes at a time: f(row) gives the source and the target of a row.
template <class Rows>
__device__ inline void copy_rows(const Work& w, int64_t rows, const Rows& f) {
  const int64_t words = w.layout.row_bytes / 16;
  for (int64_t i = own_thread(); i < rows * words; i += kThreads) {
    const auto [from, to] = f(i / words);
    const int64_t at = i % words * 16;
    *reinterpret_cast<uint4*>(to + at) = *reinterpret_cast<const uint4*>(from + at);
  }
}

#if defined(TESSERA_NVSHMEM) || defined(TESSERA_EMULATED_DEVICE)
/// Rows for a rank on another host: from their place before departure, then their flag.
template <class Source>
__device__ inline void put_far_rows(const Seat& seat, const Transfer& t, int64_t rows,
                                    const Source& row) {
  std::byte* const own = seat.own().heap;
  const int64_t bytes = seat.w.layout.row_bytes, words = bytes / 16;
  if (rows > 0 && row(0) != own + t.from)
    for (int64_t i = own_thread(); i < rows * words; i += kThreads)
      put_16(own + t.from + i * 16,
             *reinterpret_cast<const uint4*>(row(i / words) + i % words * 16));
  meet();
  if (own_thread() == 0)
    kernels::cuda::put_far(own + t.at, own + t.from, rows * bytes,
                           reinterpret_cast<uint64_t*>(own + t.word), t.value, t.to);
}
#endif

/// The word of a transfer without rows.
__device__ inline void put_word(const Seat& seat, const Transfer& t) {
#if defined(TESSERA_NVSHMEM) || defined(TESSERA_EMULATED_DEVICE)
  if (!seat.w.ranks[t.to].heap)
    return kernels::cuda::flag_far(reinterpret_cast<uint64_t*>(seat.own().heap + t.word), t.value,
                                   t.to);
#endif
  kernels::cuda::store_release(reinterpret_cast<uint64_t*>(seat.w.ranks[t.to].heap + t.word),
                               t.value);
}

/// Rows into a peer's memory, then their flag.
template <class Faults, class Source>
__device__ inline void put_rows(const Seat& seat, const Transfer& t, int64_t rows,
                                const Source& row) {
  const Work& w = seat.w;
#if defined(TESSERA_NVSHMEM) || defined(TESSERA_EMULATED_DEVICE)
  if (!w.ranks[t.to].heap) return put_far_rows(seat, t, rows, row);
#endif
  std::byte* const peer = w.ranks[t.to].heap;
  auto* const flag = reinterpret_cast<uint64_t*>(peer + t.word);
  const uint64_t value =
      t.value - (Faults::is(Fault::flag_of_last_epoch) ? uint64_t{1} << 32 : uint64_t{0});
  const bool mine = own_thread() == 0;
  if (Faults::is(Fault::flag_before_rows) && mine) kernels::cuda::store_release(flag, value);
  const int64_t words = w.layout.row_bytes / 16;
  for (int64_t i = own_thread(); i < rows * words; i += kThreads)
    put_16(peer + t.at + i * 16, *reinterpret_cast<const uint4*>(row(i / words) + i % words * 16));
  if (Faults::is(Fault::flag_before_barrier) && mine) kernels::cuda::store_release(flag, value);
  meet();
  if (!mine || Faults::is(Fault::flag_before_rows) || Faults::is(Fault::flag_before_barrier))
    return;
  if (Faults::is(Fault::flag_without_fence))
    kernels::cuda::store_unordered(flag, value);
  else
    kernels::cuda::store_release(flag, value);
}

template <class Faults>
__device__ inline void dispatch(const Seat& seat, const Task& task) {
  const RankWork& r = seat.own();
  const int32_t* const pair = seat.pairs(task);
  const int64_t stride = r.x_stride * size_of(seat.w.dtype);
  put_rows<Faults>(seat,
                   seat.dispatcher().tile(task, seat.coordinator().counts(task), seat.w.epoch),
                   task.rows, [&](int64_t i) {
                     return static_cast<const std::byte*>(r.x) + pair[i] / seat.w.slots * stride;
                   });
}

template <class Faults>
__device__ inline void give_back(const Seat& seat, const Task& task) {
  const Transfer t = seat.dispatcher().tile(task, seat.coordinator().counts(task), seat.w.epoch);
  put_rows<Faults>(seat, t, task.rows, [&](int64_t i) {
    return seat.own().heap + t.from + i * seat.w.layout.row_bytes;
  });
}

__device__ inline void collect(const Seat& seat, const Task& task) {
  struct Move {
    const std::byte* from;
    std::byte* to;
  };
  const RankWork& r = seat.own();
  const int64_t row = seat.w.layout.row_bytes;
  const std::byte* const from =
      r.heap + seat.dispatcher().offset(task, Side::incoming, seat.coordinator().counts(task));
  const int32_t* const pair = seat.pairs(task);
  copy_rows(seat.w, task.rows, [&](int64_t i) {
    return Move{from + i * row, static_cast<std::byte*>(r.rows) + pair[i] * row};
  });
}

/// Sums of a block of tokens, as kernels::combine: slots in order, then the shared expert.
__device__ inline void combine(const Seat& seat, const Task& task) {
  using kernels::cuda::load, kernels::cuda::store;
  const Work& w = seat.w;
  const RankWork& r = seat.own();
  if (!r.y) return;
  const int64_t chunks = w.hidden / 8, first = seat.first_token(task.index);
  for (int64_t n = own_thread(); n < seat.tokens_of(task.index) * chunks; n += kThreads) {
    const int64_t t = first + n / chunks, c = n % chunks * 8;
    float sum[8] = {};
    for (int64_t i = t * w.slots; i < (t + 1) * w.slots; ++i) {
      float v[8] = {};
      if (r.ids[i] >= 0) load<8>(r.rows, w.dtype, i * w.hidden + c, v);
      const float weight = r.weights[i];
      TESSERA_UNROLL
      for (int j = 0; j < 8; ++j) sum[j] += weight * v[j];
    }
    if (r.shared) {
      float v[8];
      load<8>(r.shared, w.dtype, t * r.shared_stride + c, v);
      TESSERA_UNROLL
      for (int j = 0; j < 8; ++j) sum[j] += v[j];
    }
    store<8>(r.y, w.dtype, t * w.hidden + c, sum);
  }
}

}  // namespace tessera::fused::cuda
