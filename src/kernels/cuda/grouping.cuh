#pragma once

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/grouping.h"

namespace tessera::kernels::cuda {

/// Which of the experts [first, last) has a tile of rows; it is none behind their last.
__device__ inline int expert_of(const DeviceGroups& groups, int first, int last, int tile) {
  while (last - first > 1) {
    const int middle = (first + last) / 2;
    (groups.tile_begin[middle] <= tile ? first : last) = middle;
  }
  return first;
}

}  // namespace tessera::kernels::cuda
