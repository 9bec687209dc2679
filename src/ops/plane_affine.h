#pragma once

#include "kernels/plane_affine.h"
#include "tensor/tensor.h"

namespace tessera::ops {

using tensor::DType;
using tensor::Tensor;

/// A norm whose scale and shift depend on the place (SpatialNorm, Zheng et al. 2022, in three
/// dimensions): x [frames, h, w, c] * scale + shift from `norm` f32 [1, 2, c] (group_scale_shift),
/// then
/// * at(y) + at(b), then SiLU. y and b f32 [frames', h', w', c] are read at the nearest place;
/// where x has an odd number of frames above one, its first frame reads theirs, the others read the
/// others. The dtype of x. Throws Error(usage) on sizes that do not fit.
Tensor plane_affine(const Tensor& x, const Tensor& norm, const Tensor& y, const Tensor& b);

/// Frame of `from` that is nearest to frame t of `frames`, by the rule above.
using kernels::nearest_frame;

}  // namespace tessera::ops
