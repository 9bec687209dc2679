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

/// The latent after a step and the estimate of the clean one, both f32 like x.
struct LinearStepResult {
  Tensor next;
  Tensor estimate;  ///< undefined if it was not asked for
};
/// A step of a solver that is linear in what it reads, in f64: x f32 [tokens, n], prediction f32
/// [tokens, n or more], of which the first n columns are read, `earlier` the estimates of the steps
/// before, newest last, and noise, both like x. Earlier estimates and noise are read where their
/// coefficient is not zero; throws Error(usage) if they are missing then.
LinearStepResult linear_step(const Tensor& x, const Tensor& prediction,
                             std::span<const Tensor> earlier, const Tensor& noise,
                             const LinearStepCoefficients& by, bool with_estimate);
/// A step of DDPM with learned-range variance: x f32 [tokens, n], prediction f32 [tokens, 2 * n] =
/// [eps | sigma], noise like x; undefined: none is added.
Tensor learned_range_step(const Tensor& x, const Tensor& prediction, const Tensor& noise,
                          const LearnedRangeCoefficients& by);
/// x - velocity * size: x f32 [tokens, n], velocity f32 [tokens, n or more], of which the first n
/// columns are read.
Tensor flow_step(const Tensor& x, const Tensor& velocity, float size);
/// Classifier-free guidance (Ho & Salimans 2022) on the first `columns` columns of predictions f32
/// [tokens, n]: uncond + scale * (cond - uncond); the other columns are those of `cond`.
Tensor guide(const Tensor& cond, const Tensor& uncond, float scale, int64_t columns);

/// Of each row of logits f32 [rows, n], on the host wherever they are; except: an index that does
/// not count, or -1. From a GPU it waits.
std::vector<Peak> peaks(const Tensor& logits, int64_t except);
/// softmax of each row: logits f32 [rows, n] -> f32 [rows, n], on the host.
Tensor softmax(const Tensor& logits);
/// Of logits of the host, on the caller's thread.
Peak peak(std::span<const float> logits, int64_t except);

}  // namespace tessera::ops
