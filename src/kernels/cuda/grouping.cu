#include "kernels/cuda/grouping.h"
#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {
namespace {

constexpr int kSortWarps = 4, kScanThreads = 1024, kMostParts = 64;

// Calls place(i, id, rank) for the pairs of a chunk in order: rank counts earlier pairs of the same
// expert in the chunk. `count` [experts] of the warp ends as the totals.
template <class Place>
__device__ inline void walk_chunk(const int32_t* ids, int64_t pairs, int experts, int64_t chunk,
                                  int* count, Place place) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int e = lane; e < experts; e += kWarp) count[e] = 0;
  __syncwarp();
  for (int64_t from = chunk * kSortChunk; from < (chunk + 1) * kSortChunk; from += kWarp) {
    const int64_t i = from + lane;
    const int id = i < pairs ? ids[i] : -1;
    const unsigned same = __match_any_sync(kAllLanes, id);
    const int before = __popc(same & ((1u << lane) - 1));
    const int rank = id >= 0 ? count[id] + before : 0;
    __syncwarp();
    if (id >= 0 && before == 0) count[id] += __popc(same);
    __syncwarp();
    if (id >= 0) place(i, id, rank);
  }
}

__global__ void __launch_bounds__(kSortWarps* kWarp)
    count_kernel(const int32_t* ids, int64_t pairs, int experts, int32_t* counts) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t chunk = int64_t{blockIdx.x} * kSortWarps + warp;
  if (chunk * kSortChunk >= pairs) return;
  int* count = reinterpret_cast<int*>(dynamic_shared()) + warp * experts;
  walk_chunk(ids, pairs, experts, chunk, count, [](int64_t, int, int) {});
  __syncwarp();
  for (int e = static_cast<int>(threadIdx.x) % kWarp; e < experts; e += kWarp)
    counts[chunk * experts + e] = count[e];
}

// offsets: for each chunk and expert, the number of pairs in earlier chunks; total: over all
// chunks. Threads sum parts of the chunks separately, then add the part offsets.
__device__ inline void scan_chunks(const int32_t* __restrict__ counts,
                                   int32_t* __restrict__ offsets, int64_t chunks, int experts,
                                   int* total, int* part_sums) {
  const int thread = static_cast<int>(threadIdx.x);
  const int width = experts < kScanThreads ? experts : kScanThreads;
  const int fit = kScanThreads / width, parts = fit < kMostParts ? fit : kMostParts;
  const int part = thread / width;
  const int64_t run = (chunks + parts - 1) / parts, first = part * run;
  const int64_t last = first + run < chunks ? first + run : chunks;
  for (int from = 0; from < experts; from += width) {
    const int e = from + thread % width;
    const bool in_range = part < parts && e < experts;
    int sum = 0;
    if (in_range)
      for (int64_t c = first; c < last; ++c) sum += counts[c * experts + e];
    part_sums[thread] = sum;
    __syncthreads();
    sum = 0;
    if (in_range) {
      for (int before = 0; before < part; ++before)
        sum += part_sums[before * width + thread % width];
      for (int64_t c = first; c < last; ++c) {
        offsets[c * experts + e] = sum;
        sum += counts[c * experts + e];
      }
      if (part == parts - 1) total[e] = sum;
    }
    __syncthreads();
  }
}

// A single block computes the start of each expert's pairs, the offsets of each chunk, and the
// tiles.
__global__ void __launch_bounds__(kScanThreads)
    scan_kernel(const int32_t* counts, int32_t* offsets, int64_t chunks, int experts, int tile_rows,
                DeviceGroups groups) {
  int* total = reinterpret_cast<int*>(dynamic_shared());
  scan_chunks(counts, offsets, chunks, experts, total, total + experts);
  if (threadIdx.x >= kWarp) return;
  // Each lane adds a run of experts and gets the sum of the preceding runs.
  const int lane = static_cast<int>(threadIdx.x), per = (experts + kWarp - 1) / kWarp;
  const int first = lane * per < experts ? lane * per : experts;
  const int last = first + per < experts ? first + per : experts;
  int rows = 0, tiles = 0;
  for (int e = first; e < last; ++e) {
    rows += total[e];
    tiles += (total[e] + tile_rows - 1) / tile_rows;
  }
  int rows_before = rows, tiles_before = tiles;
  for (int step = 1; step < kWarp; step *= 2) {
    const int more_rows = __shfl_up_sync(kAllLanes, rows_before, step);
    const int more_tiles = __shfl_up_sync(kAllLanes, tiles_before, step);
    if (lane >= step) {
      rows_before += more_rows;
      tiles_before += more_tiles;
    }
  }
  rows_before -= rows;
  tiles_before -= tiles;
  for (int e = first; e < last; ++e) {
    groups.begin[e] = rows_before;
    groups.tile_begin[e] = tiles_before;
    rows_before += total[e];
    tiles_before += (total[e] + tile_rows - 1) / tile_rows;
  }
  if (lane == kWarp - 1) {
    groups.begin[experts] = rows_before;
    groups.tile_begin[experts] = tiles_before;
  }
}

__global__ void __launch_bounds__(kSortWarps* kWarp)
    place_kernel(const int32_t* ids, int64_t pairs, int experts, const int32_t* offsets,
                 DeviceGroups groups) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t chunk = int64_t{blockIdx.x} * kSortWarps + warp;
  if (chunk * kSortChunk >= pairs) return;
  int* count = reinterpret_cast<int*>(dynamic_shared()) + warp * experts;
  const int32_t* offset = offsets + chunk * experts;
  walk_chunk(ids, pairs, experts, chunk, count, [&](int64_t i, int id, int rank) {
    groups.pair[groups.begin[id] + offset[id] + rank] = static_cast<int32_t>(i);
  });
}

}  // namespace

int64_t lay_out(DeviceGroups& groups, std::byte* memory, int64_t pairs, int64_t experts) {
  int64_t used = 0;
  const auto take = [&](int32_t*& array, int64_t count) {
    if (memory) array = reinterpret_cast<int32_t*>(memory + used);
    used += ceil_div<int64_t>(count * 4, 128) * 128;
  };
  take(groups.begin, experts + 1);
  take(groups.tile_begin, experts + 1);
  take(groups.pair, pairs);
  take(groups.counts, 2 * ceil_div(pairs, kSortChunk) * experts);
  return used;
}

void group_on_device(const int32_t* ids, int64_t pairs, int64_t experts, int tile_rows,
                     const DeviceGroups& groups) {
  const int64_t chunks = ceil_div(pairs, kSortChunk);
  const int count = static_cast<int>(experts);
  int32_t* offsets = groups.counts + chunks * experts;
  const Launch sort{.blocks = ceil_div<int64_t>(chunks, kSortWarps),
                    .threads = kSortWarps * kWarp,
                    .shared = kSortWarps * experts * 4};
  launch("group", count_kernel, sort, ids, pairs, count, groups.counts);
  launch("group", scan_kernel,
         Launch{.threads = kScanThreads, .shared = (experts + kScanThreads) * 4},
         static_cast<const int32_t*>(groups.counts), offsets, chunks, count, tile_rows, groups);
  launch("group", place_kernel, sort, ids, pairs, count, static_cast<const int32_t*>(offsets),
         groups);
}

}  // namespace tessera::kernels::cuda
