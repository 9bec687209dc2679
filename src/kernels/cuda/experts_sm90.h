#pragma once

#include "kernels/cuda/grouping.h"
#include "kernels/experts.h"

namespace tessera::kernels::cuda {

constexpr int kExpertMaps = 64;   ///< experts at a time: their tensor maps are parameters
constexpr int kExpertRows = 128;  ///< of a tile

/// The two products of a layer of experts, whose pairs are grouped in tiles of kExpertRows.
struct ExpertProducts {
  const ExpertsArgs* args;
  const void* x;  ///< bf16 [tokens, hidden]
  int64_t x_stride;
  void* sorted;  ///< bf16 [pairs, hidden]: where rows of x are brought together by expert
  void* inner;   ///< bf16 [pairs, inner]
  DeviceGroups groups;
};

/// Whether experts_sm90() takes these: bf16 weights of whole 16-byte words.
bool serves_sm90(const ExpertsArgs& args);

/// Grouped products of a GPU of compute capability 9, by boxes; a row depends on no other. Writes
/// args.rows of all pairs that have an expert.
void experts_sm90(const ExpertProducts& p);

}  // namespace tessera::kernels::cuda
