#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/grouping.h"

namespace tessera::kernels::cuda {

/// The expert in [first, last) with this tile of rows; `last` beyond the last tile.
__device__ inline int expert_of(const DeviceGroups& groups, int first, int last, int tile) {
  while (last - first > 1) {
    const int middle = (first + last) / 2;
    (groups.tile_begin[middle] <= tile ? first : last) = middle;
  }
  return first;
}

}  // namespace tessera::kernels::cuda
