#pragma once

#include <span>
#include <vector>

#include "kernels/sampling.h"
#include "tensor/tensor.h"

namespace tessera::ops {

using kernels::LearnedRangeCoefficients;
using kernels::LinearStepCoefficients;
using kernels::Peak;
using tensor::Tensor;

/// The latent after a step and the estimate of the clean latent, both f32 like x.
struct LinearStepResult {
  Tensor next;
  Tensor estimate;  ///< undefined unless requested
};
/// A linear solver step, in f64: x f32 [tokens, n], prediction f32 [tokens, n or more] (only the
/// first n columns are read), `earlier` the estimates of previous steps, newest last, and noise,
/// both like x. Earlier estimates and noise are read only if their coefficient is not zero; throws
/// Error(usage) if they are missing then.
LinearStepResult linear_step(const Tensor& x, const Tensor& prediction,
                             std::span<const Tensor> earlier, const Tensor& noise,
                             const LinearStepCoefficients& by, bool with_estimate);
/// A DDPM step with learned-range variance: x f32 [tokens, n], prediction f32 [tokens, 2 * n] =
/// [eps | sigma], noise like x; undefined: no noise.
Tensor learned_range_step(const Tensor& x, const Tensor& prediction, const Tensor& noise,
                          const LearnedRangeCoefficients& by);
/// x - velocity * size: x f32 [tokens, n], velocity f32 [tokens, n or more] (only the first n
/// columns are read).
Tensor flow_step(const Tensor& x, const Tensor& velocity, float size);
/// Classifier-free guidance (Ho & Salimans 2022) on the first `columns` columns of predictions f32
/// [tokens, n]: uncond + scale * (cond - uncond); other columns are copied from `cond`.
Tensor guide(const Tensor& cond, const Tensor& uncond, float scale, int64_t columns);

/// Peaks of each row of logits f32 [rows, n], returned on the host; except: an index to ignore, or
/// -1. Waits for a GPU.
std::vector<Peak> peaks(const Tensor& logits, int64_t except);
/// Softmax of each row: logits f32 [rows, n] -> f32 [rows, n], on the host.
Tensor softmax(const Tensor& logits);
/// Peak of logits in host memory, on the caller's thread.
Peak peak(std::span<const float> logits, int64_t except);

}  // namespace tessera::ops
