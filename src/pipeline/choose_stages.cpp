#include "pipeline/choose_stages.h"

#include <algorithm>

#include "base/fail.h"
#include "load/meta_weights.h"
#include "parallel/denoise.h"

namespace tessera::pipeline {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

namespace {

std::vector<double> flops_of(const nn::Denoiser& model, const models::PipelineSpec& spec,
                             const nn::TokenLayout& layout) {
  tensor::Scope scope;
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  const nn::Conditioning conditioning = spec.example(1);
  parallel::Setup setup({}, model.geometry(), {1, layout.grid(), 1, 1, spec.prefix(conditioning)});
  std::vector<double> flops;
  double before = 0;
  parallel::DenoiseControl control;
  control.trace = [&](const std::string& name, const Tensor&) {
    const double now = scope.meter->total().flops;
    if (name == model.block_name(static_cast<int>(flops.size()))) flops.push_back(now - before);
    before = now;
  };
  parallel::forward(
      model, conditioning, Tensor::empty({1}, DType::f32, Device::meta),
      Tensor::empty({layout.tokens(), layout.token_channels()}, DType::f32, Device::meta), setup,
      control);
  return flops;
}

}  // namespace

std::vector<double> block_flops(const models::PipelineSpec& spec, nn::DType dtype) {
  tensor::Scope aside;
  const tensor::BindScope rehearsal(aside);
  const auto model = spec.make(load::MetaWeights(), spec.whole(), dtype);
  nn::TokenLayout layout = spec.layout(0, 0);
  const auto halved = [&](size_t side) {
    return std::max(layout.size[side] / 2 / layout.patch[side], int64_t{1}) * layout.patch[side];
  };
  for (;;) try {
      return flops_of(*model, spec, layout);
    } catch (const Error& e) {  // larger than what the model has positions for, so no run has it
      const nn::TokenLayout smaller = spec.layout(halved(1), halved(2));
      if (e.code() != ErrorCode::usage || smaller.size == layout.size) throw;
      layout = smaller;
    }
}

void choose_stages(ModelState& state) {
  Plan& plan = state.options.plan;
  if (!state.spec || plan.pipefusion == 1 || !plan.stages.empty()) return;
  if (plan.pipefusion > state.spec->blocks) return;  // it will be refused
  plan.stages = parallel::balanced_stages(block_flops(*state.spec, state.dtype()), plan.pipefusion);
}

}  // namespace tessera::pipeline
