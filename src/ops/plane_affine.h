#pragma once

#include "kernels/plane_affine.h"
#include "tensor/tensor.h"

namespace tessera::ops {

using tensor::DType;
using tensor::Tensor;

/// A norm with spatially varying scale and shift (SpatialNorm, Zheng et al. 2022, in three
/// dimensions): x [frames, h, w, c] * scale + shift from `norm` f32 [1, 2, c] (group_scale_shift),
/// then * at(y) + at(b), then SiLU. y and b f32 [frames', h', w', c] are read at the nearest
/// position; for an odd number of frames above one, the first frame of x reads the first of y, the
/// others read the others. The result has the dtype of x. Throws Error(usage) for mismatched sizes.
Tensor plane_affine(const Tensor& x, const Tensor& norm, const Tensor& y, const Tensor& b);

/// Nearest frame of `from` for frame t of `frames`, by the rule above.
using kernels::nearest_frame;

}  // namespace tessera::ops
