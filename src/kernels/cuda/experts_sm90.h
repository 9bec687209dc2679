#pragma once

#include "kernels/cuda/grouping.h"
#include "kernels/experts.h"

namespace tessera::kernels::cuda {

constexpr int kExpertMaps = 64;   ///< experts at a time: their tensor maps are parameters
constexpr int kExpertRows = 128;  ///< of a tile

/// Of an expert, in device memory.
struct ExpertPointers {
  const void *gate_up, *down;
  const float *gate_up_scales, *down_scales;
};

/// The two products of a layer of experts, whose pairs are grouped in tiles of kExpertRows. Planes
/// of x are added: with two, f32 as Form::split. Weights of i8 have two inner planes, those of bf16
/// one.
struct ExpertProducts {
  const ExpertsArgs* args;
  const void* x;  ///< bf16 [planes, tokens, hidden]
  int64_t x_stride, x_plane;
  int planes;
  void* sorted;  ///< bf16 [planes, pairs, hidden]: where rows of x are brought together by expert
  void* inner;   ///< bf16 [inner planes, pairs, inner]
  DeviceGroups groups;
  const ExpertPointers* bank;
};

/// Whether experts_sm90() takes these: weights of bf16 or i8 in whole 16-byte words.
bool serves_sm90(const ExpertsArgs& args);

/// Grouped products of a GPU of compute capability 9, by boxes; a row depends on no other. Writes
/// args.rows of all pairs that have an expert.
void experts_sm90(const ExpertProducts& p);

}  // namespace tessera::kernels::cuda
