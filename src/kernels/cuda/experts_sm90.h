#pragma once

#include "kernels/cuda/grouping.h"
#include "kernels/experts.h"

namespace tessera::kernels::cuda {

constexpr int kExpertMaps = 64;   ///< experts at a time: tensor maps are kernel parameters
constexpr int kExpertRows = 128;  ///< rows of a tile

/// Pointers of an expert, in device memory.
struct ExpertPointers {
  const void *gate_up, *down;
  const float *gate_up_scales, *down_scales;
};

/// Both products of a layer of experts, with pairs grouped in tiles of kExpertRows. Planes of x are
/// summed: with two, f32 as Form::split. i8 weights have two inner planes, bf16 weights have one.
struct ExpertProducts {
  const ExpertsArgs* args;
  const void* x;  ///< bf16 [planes, tokens, hidden]
  int64_t x_stride, x_plane;
  int planes;
  void* sorted;  ///< bf16 [planes, pairs, hidden]: buffer for rows of x sorted by expert
  void* inner;   ///< bf16 [inner planes, pairs, inner]
  DeviceGroups groups;
  const ExpertPointers* bank;
};

/// True if experts_sm90() supports these: weights of bf16 or i8 in whole 16-byte words.
bool serves_sm90(const ExpertsArgs& args);

/// Grouped products for compute capability 9, by boxes; a row depends on no other. Writes args.rows
/// of all pairs with an expert.
void experts_sm90(const ExpertProducts& p);

}  // namespace tessera::kernels::cuda
