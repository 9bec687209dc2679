#pragma once

#include "fused/cuda/work.h"

namespace tessera::fused::cuda {

/// Rows of a tile, and columns of its products' panels, on the current device.
struct KernelTiles {
  int64_t rows = 0, up_columns = 0, down_columns = 0;
  int map_rows = 0;  ///< rows of a box in Work::maps; 0: no maps
};
KernelTiles kernel_tiles(DType weights, Activation kind);

/// True if kernels reach ranks without an address (built with NVSHMEM).
bool reaches_far();

/// Blocks that run at once on the current device, for this work.
int resident_blocks(const Work& work);

/// Queues the layer of all ranks: a single launch, on the stream of the current scope. Throws
/// Error(usage) if the device refuses.
void launch_layer(const Work& work);

}  // namespace tessera::fused::cuda
