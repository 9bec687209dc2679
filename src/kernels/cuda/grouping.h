#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::kernels::cuda {

/// The (token, slot) pairs by expert, as kernels::ExpertGroups, in device memory: pair[begin[e] ..
/// begin[e + 1]) are the numbers t * slots + j that go to expert e, rising; its tiles of rows are
/// tile_begin[e] .. tile_begin[e + 1).
struct DeviceGroups {
  int32_t *begin = nullptr, *tile_begin = nullptr;  ///< [experts + 1]
  int32_t* pair = nullptr;                          ///< [pairs]
  int32_t* counts = nullptr;                        ///< of the sort: [chunks, experts], twice
};

constexpr int64_t kSortChunk = 256;  ///< pairs that a warp sorts

/// Bytes that the arrays of `groups` take from `memory` on, which are set if it is not null.
int64_t lay_out(DeviceGroups& groups, std::byte* memory, int64_t pairs, int64_t experts);

/// Queues a stable counting sort of ids [pairs]; -1 is left out. Tiles have `tile_rows` rows.
void group_on_device(const int32_t* ids, int64_t pairs, int64_t experts, int tile_rows,
                     const DeviceGroups& groups);

/// Most tiles that `pairs` over `experts` can make, whatever the ids.
constexpr int64_t most_tiles(int64_t pairs, int64_t experts, int64_t tile_rows) {
  const int64_t touched = pairs < experts ? pairs : experts;
  return pairs == 0 ? 0 : (pairs - touched) / tile_rows + touched;
}

/// Rows of a tile for so many pairs an expert: large tiles where experts are busy.
constexpr int expert_tile_rows(int64_t pairs, int64_t experts) {
  return experts > 0 && pairs / experts >= 96 ? 128 : 64;
}

}  // namespace tessera::kernels::cuda
