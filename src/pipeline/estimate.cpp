#include "pipeline/estimate.h"

#include <algorithm>

#include "base/fail.h"
#include "load/meta_weights.h"
#include "parallel/denoise.h"

namespace tessera::pipeline {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

constexpr int64_t kMostTokens = int64_t{1} << 26;  // of a step: 17 GB for the narrowest activations

}  // namespace

int64_t latent_pixels(int64_t pixels, int64_t factor, int64_t patch, const char* side) {
  constexpr int64_t kMost = 1 << 20;
  const int64_t unit = factor * patch;
  require(pixels >= 0 && pixels <= kMost, ErrorCode::usage,
          "--{} {}: expected a multiple of {} up to {}, or nothing for the trained size", side,
          pixels, unit, kMost);
  const int64_t below = pixels / unit * unit;
  require(pixels == below, ErrorCode::usage, "--{} {}: expected a multiple of {}: {}{}", side,
          pixels, unit, below > 0 ? fmt::format("{} or ", below) : "", below + unit);
  return pixels / factor;
}

nn::DType dtype_of(const RunOptions& options) {
  return options.precision == Precision::f32 ? nn::DType::f32 : nn::DType::bf16;
}

std::optional<nn::DType> expert_dtype_of(const RunOptions& options) {
  return options.precision == Precision::int8 ? std::optional(nn::DType::i8) : std::nullopt;
}

void check_tokens(const nn::TokenLayout& layout, int64_t batch) {
  require(layout.tokens() <= kMostTokens / batch, ErrorCode::memory,
          "a step of this run has {} sequences of {} tokens, too many for any machine: use a "
          "smaller size or --count",
          batch, layout.tokens());
}

Estimate estimate(const models::PipelineSpec& spec, nn::DType dtype, const nn::TokenLayout& layout,
                  int samples, bool branches, std::optional<nn::DType> experts) {
  const int64_t batch = int64_t{samples} * (branches ? 2 : 1);
  check_tokens(layout, batch);
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  Estimate result;
  {
    const load::MetaWeights weights;
    nn::Portion whole = spec.whole();
    whole.expert_dtype = experts;
    const auto model = spec.make(weights, whole, dtype);
    result.parameters = weights.parameters();
    const nn::Conditioning conditioning = spec.example(batch);
    parallel::Setup setup({}, model->geometry(),
                          {samples, layout.grid(), branches ? 2 : 1, 1, spec.prefix(conditioning)});
    parallel::forward(
        *model, conditioning, Tensor::empty({batch}, DType::f32, Device::meta),
        Tensor::empty({batch * layout.tokens(), layout.token_channels()}, DType::f32, Device::meta),
        setup, {});
  }
  result.flops_per_step = scope.meter->total().flops;
  result.work = scope.meter->entries();
  result.weights = scope.memory->peak(tensor::MemoryClass::weights);
  result.activations = scope.memory->peak(tensor::MemoryClass::activations);
  result.peak = scope.memory->peak();
  return result;
}

}  // namespace tessera::pipeline
