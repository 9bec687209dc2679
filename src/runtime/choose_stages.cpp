#include "runtime/choose_stages.h"

#include <algorithm>

#include "base/fail.h"
#include "load/meta_weights.h"
#include "parallel/denoise.h"
#include "parallel/experts/launch_limits.h"
#include "runtime/streamed.h"
#include "tensor/uncounted.h"

namespace tessera::runtime {

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
  parallel::Workload workload{1, layout.grid(), 1, 1, spec.prefix(conditioning)};
  workload.extra = layout.extra;
  parallel::Setup setup({}, model.geometry(), workload);
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
  const tensor::Uncounted aside;
  const auto model = spec.make(load::MetaWeights(), spec.whole(), dtype);
  nn::TokenLayout layout = spec.layout(0, 0);
  const auto side = [&](size_t i) {  // the model's positions limit the size of a run
    return std::min(layout.size[i], spec.positions * layout.patch[i]);
  };
  if (spec.positions > 0) layout = spec.layout(side(1), side(2));
  return flops_of(*model, spec, layout);
}

void check_launches(const ModelState& state) {
  const Plan& plan = state.options.plan;
  if (plan.moe != MoeForm::fused || !tensor::is_gpu(state.device())) return;
  std::string problem;
  if (state.spec) problem = parallel::launch_problem(plan, state.geometry());
  if (state.language)
    problem = parallel::launch_problem(plan, state.language->geometry(state.dtype()));
  require(problem.empty(), ErrorCode::plan, "the plan cannot run: {}", problem);
}

void choose_stages(ModelState& state) {
  Plan& plan = state.options.plan;
  if (!state.spec || plan.pipefusion == 1 || !plan.stages.empty()) return;
  if (plan.pipefusion > state.spec->blocks) return;  // the plan will be refused later
  const std::vector<int64_t> bytes = part_weights(*state.spec, state.dtype(), state.expert_dtype(),
                                                  *state.meta_weights_of("transformer"))
                                         .blocks;
  plan.stages = parallel::balanced_stages(block_flops(*state.spec, state.dtype()),
                                          {bytes.begin(), bytes.end()}, plan.pipefusion);
}

}  // namespace tessera::runtime
