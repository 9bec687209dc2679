#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::kernels {

/// True if the program was built with NVSHMEM, for memory of GPUs on several hosts.
bool has_far_memory();

/// NVSHMEM's id of its ranks, for messages.
using FarJoin = std::array<char, 128>;
/// Symmetric memory of NVSHMEM.
struct FarMemory {
  std::shared_ptr<std::byte> own;
  std::vector<std::byte*> addresses;  ///< by rank; null: on another host
};

/// Ranks with such memory: their numbers in the world, and the place of this process among them.
struct FarRanks {
  std::vector<int> members;
  int rank = 0;
};

/// The steps to symmetric memory. All ranks call each after all have ended the step before, because
/// NVSHMEM waits for ranks without a deadline. First: the id by which ranks join, on the first
/// rank. A process keeps its ranks for life. Throws Error(plan) for others, and for a GPU without
/// order among the writes of network cards; Error(usage) without a GPU in use.
FarJoin begin_far_memory(const FarRanks& ranks);
/// Throws Error(rank) if NVSHMEM fails.
void join_far_memory(const FarRanks& ranks, const FarJoin& id);
/// The number of the block for so many bytes, which must be equal on all ranks. Blocks are kept for
/// later calls, as NVSHMEM frees them on all ranks at once.
int64_t next_far_block(int64_t bytes);
/// The block, with zeros. Throws Error(memory) if the GPU has no room.
FarMemory allocate_far_memory(int64_t block, int64_t bytes);

}  // namespace tessera::kernels
