#include "parallel/denoise.h"

#include <numeric>
#include <utility>

#include "base/fail.h"
#include "ops/elementwise.h"

namespace tessera::parallel {
namespace {

using tensor::DType;
using tensor::Tensor;

nn::TokenView whole_view(const nn::TokenShape& shape) {
  nn::TokenView view;
  view.rows.resize(static_cast<size_t>(shape.rows));
  std::iota(view.rows.begin(), view.rows.end(), 0);
  for (int row : view.rows) {
    if (shape.prefix > 0) view.prefix.push_back({row, {0, shape.prefix}});
    view.body.push_back({row, {0, shape.tokens()}});
  }
  return view;
}

Tensor timesteps(float value, int rows, tensor::Device device) {
  Tensor t = Tensor::empty({rows}, DType::f32, device);
  if (!t.is_meta()) std::fill_n(t.data<float>(), rows, value);
  return t;
}

Tensor run_blocks(const nn::Denoiser& model, const nn::StepContext& step, const nn::TokenView& view,
                  const Tensor& latent, Assembly& assembly, const DenoiseControl& control,
                  bool trace_blocks) {
  nn::Hidden hidden = model.embed(step, latent, view);
  const bool trace = trace_blocks && control.trace;
  if (trace) control.trace("embedding", hidden.tokens.body);
  for (int64_t b = assembly.blocks.begin; b < assembly.blocks.end; ++b) {
    require(!control.stop.stop_requested(), ErrorCode::cancelled, "stopped before block {}", b);
    model.block(static_cast<int>(b), step, view, hidden, assembly.seams());
    if (!trace) continue;
    const std::string name = model.block_name(static_cast<int>(b));
    control.trace(name, hidden.tokens.body);
    if (hidden.tokens.prefix.defined()) control.trace(name + ".context", hidden.tokens.prefix);
  }
  return model.head(step, view, hidden);
}

// Conditional rows first, then as many unconditional ones.
Tensor guided(const Tensor& prediction, const Guidance& guidance, int64_t patch) {
  if (!guidance.branches()) return prediction;
  const int64_t half = prediction.size(0) / 2;
  return sample::guide(prediction.slice(0, 0, half), prediction.slice(0, half, 2 * half),
                       guidance.scale, guidance.channels * patch);
}

}  // namespace

Tensor forward(const nn::Denoiser& model, const nn::Conditioning& conditioning,
               const nn::TokenShape& shape, const Tensor& timestep, const Tensor& latent,
               Assembly& assembly, const DenoiseControl& control) {
  const nn::StepInfo info{0, 1, true, true};
  assembly.attention->begin_step(info);
  assembly.experts->begin_step(info);
  const nn::ContextPtr context = model.prepare(conditioning, shape);
  const nn::StepContextPtr step = model.at(*context, timestep);
  const Tensor out = run_blocks(model, *step, whole_view(shape), latent, assembly, control, true);
  assembly.attention->finish();
  assembly.experts->finish();
  return out;
}

Tensor denoise(const nn::Denoiser& model, const nn::Conditioning& conditioning,
               const nn::TokenShape& shape, const sample::Sampler& sampler,
               const Guidance& guidance, Tensor latent,
               const std::function<Tensor(int step)>& noise, Assembly& assembly,
               const DenoiseControl& control) {
  const nn::TokenView view = whole_view(shape);
  const nn::ContextPtr context = model.prepare(conditioning, shape);
  const auto& [pt, p, q] = model.geometry().patch_size;
  sample::History history;
  for (int i = 0; i < sampler.steps(); ++i) {
    require(!control.stop.stop_requested(), ErrorCode::cancelled, "stopped before step {} of {}",
            i + 1, sampler.steps());
    if (control.on_step) control.on_step(i, sampler.steps());
    const nn::StepInfo info{i, sampler.steps(), assembly.plan.fresh(i),
                            i + 1 == sampler.steps() || assembly.plan.fresh(i + 1)};
    assembly.attention->begin_step(info);
    assembly.experts->begin_step(info);
    const nn::StepContextPtr step =
        model.at(*context, timesteps(sampler.timestep(i), shape.rows, latent.device()));
    const float scale = sampler.input_scale(i);
    const Tensor seen = scale == 1 ? latent : ops::blend(latent, scale, latent, 0);
    const Tensor input = guidance.branches() ? ops::concat_rows({seen, seen}) : seen;
    const Tensor prediction = guided(
        run_blocks(model, *step, view, input, assembly, control, false), guidance, pt * p * q);
    latent =
        sampler.step(i, prediction, latent, sampler.needs_noise(i) ? noise(i) : Tensor(), history);
    if (control.trace) {
      control.trace(fmt::format("model_output.{}", i), prediction);
      control.trace(fmt::format("latents.{}", i + 1), latent);
    }
  }
  assembly.attention->finish();
  assembly.experts->finish();
  return latent;
}

}  // namespace tessera::parallel
