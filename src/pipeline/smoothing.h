#pragma once

#include "nn/input_records.h"

namespace tessera::pipeline {

/// Factors f32 [k] of the columns of W [n, k], whose inverses scale the product's inputs, for the
/// least error of the quantised product on the recorded rows (SmoothQuant, Xiao et al. 2023,
/// section 4): s_j = max|x_j|^a / max|W_j|^(1 - a) over their geometric mean, for the best
/// a of 0.25, 0.5 and 0.75. Undefined: none lowers the error. `int4`: W becomes int4, else int8.
tensor::Tensor smoothing_factors(const tensor::Tensor& w, const nn::InputRecord& inputs, bool int4);
/// 1 / x, elementwise, of f32 [k].
tensor::Tensor inverse_of(const tensor::Tensor& x);

}  // namespace tessera::pipeline
