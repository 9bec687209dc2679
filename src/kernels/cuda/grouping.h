#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::kernels::cuda {

/// The (token, slot) pairs by expert, like kernels::ExpertGroups, in device memory: pair[begin[e]
/// .. begin[e + 1]) are the increasing numbers t * slots + j of expert e; the expert's tiles of
/// rows are tile_begin[e] .. tile_begin[e + 1).
struct DeviceGroups {
  int32_t *begin = nullptr, *tile_begin = nullptr;  ///< [experts + 1]
  int32_t* pair = nullptr;                          ///< [pairs]
  int32_t* counts = nullptr;                        ///< [chunks, experts], twice; used by the sort
};

constexpr int64_t kSortChunk = 256;  ///< pairs sorted by a warp

/// Bytes of the arrays of `groups`; sets their pointers from `memory` on, if not null.
int64_t lay_out(DeviceGroups& groups, std::byte* memory, int64_t pairs, int64_t experts);

/// Queues a stable counting sort of ids [pairs]; -1 is skipped. Tiles have `tile_rows` rows.
void group_on_device(const int32_t* ids, int64_t pairs, int64_t experts, int tile_rows,
                     const DeviceGroups& groups);

/// Maximum tiles of `pairs` over `experts`, for any ids.
constexpr int64_t most_tiles(int64_t pairs, int64_t experts, int64_t tile_rows) {
  const int64_t experts_used = pairs < experts ? pairs : experts;
  return pairs == 0 ? 0 : (pairs - experts_used) / tile_rows + experts_used;
}

/// Rows of a tile by pairs for each expert: large tiles for busy experts.
constexpr int expert_tile_rows(int64_t pairs, int64_t experts) {
  return experts > 0 && pairs / experts >= 96 ? 128 : 64;
}

}  // namespace tessera::kernels::cuda
