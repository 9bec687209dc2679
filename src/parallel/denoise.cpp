#include "parallel/denoise.h"

#include <utility>

#include "base/fail.h"
#include "comm/collectives.h"
#include "ops/elementwise.h"
#include "ops/sampling.h"
#include "parallel/recorded_step.h"
#include "tensor/device_runtime.h"

namespace tessera::parallel {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr int kWorthRecording = 4;  // steps

Tensor timesteps(float value, int rows, tensor::Device device) {
  if (device == tensor::Device::meta) return Tensor::empty({rows}, DType::f32, device);
  Tensor t = Tensor::empty({rows}, DType::f32);
  std::fill_n(t.data<float>(), rows, value);
  return t.to(device);
}

nn::Conditioning placed(const nn::Conditioning& conditioning, tensor::Device device) {
  nn::Conditioning there = conditioning;
  for (auto& [name, x] : there.tensors)
    if (!x.is_meta()) x = x.to(device);
  return there;
}

// Where the model's tensors are; a latent on meta makes all of it meta.
tensor::Device device_of(const Assembly& assembly, const Tensor& latent) {
  return latent.is_meta() ? tensor::Device::meta : assembly.device;
}

void show(const DenoiseControl& control, const std::string& name, const Tensor& x) {
  control.trace(name, x.is_meta() ? x : x.to(tensor::Device::cpu));
}

Tensor run_rows(const nn::Denoiser& model, const nn::StepContext& step, const nn::TokenView& view,
                const Tensor& latent, Assembly& assembly, const DenoiseControl& control,
                bool trace_blocks, int half = 0) {
  nn::Hidden hidden = model.embed(step, latent, view);
  const bool trace = trace_blocks && control.trace;
  if (trace) show(control, "embedding", hidden.tokens.body);
  for (int64_t b = assembly.blocks.begin; b < assembly.blocks.end; ++b) {
    require(!control.stop.stop_requested(), ErrorCode::cancelled, "stopped before block {}", b);
    model.block(static_cast<int>(b), step, view, hidden, assembly.seams(half));
    if (assembly.world) assembly.world->advance();
    if (!trace) continue;
    const std::string name = model.block_name(static_cast<int>(b));
    show(control, name, hidden.tokens.body);
    if (hidden.tokens.prefix.defined()) show(control, name + ".context", hidden.tokens.prefix);
  }
  return model.head(step, view, hidden);
}

// All rows at once, or as two halves in turn; a rank without rows for a half goes through its
// exchanges all the same.
Tensor run_blocks(const nn::Denoiser& model, const nn::StepContext& step, const nn::TokenView& view,
                  const Tensor& latent, Assembly& assembly, const DenoiseControl& control) {
  if (!assembly.turns) return run_rows(model, step, view, latent, assembly, control, false);
  const size_t rows = view.rows.size(), cut = (rows + 1) / 2;
  const nn::TokenView halves[] = {rows_of(view, 0, cut), rows_of(view, cut, rows)};
  const int64_t first = nn::token_count(halves[0].body);
  const Tensor latents[] = {latent.slice(0, 0, first), latent.slice(0, first, latent.size(0))};
  std::vector<Tensor> out(2);
  assembly.turns->run([&](int i) {
    const auto at = static_cast<size_t>(i);
    out[at] = run_rows(model, step, halves[at], latents[at], assembly, control, false, i);
  });
  return ops::concat_rows(out);
}

// Rank 0 decides, so that all ranks stop before the same step.
bool go_on(Assembly& assembly, const DenoiseControl& control) {
  const bool stop = control.stop.stop_requested();
  if (!assembly.world || assembly.world->size() == 1) return !stop;
  return !comm::agreed(*assembly.world, 0, stop, {"go", -1});
}

// Conditional rows first, then as many unconditional ones.
Tensor guided(const Tensor& whole, const Guidance& guidance, int64_t patch, int64_t tokens) {
  Tensor prediction = guidance.kept > 0 ? whole.slice(1, 0, guidance.kept * patch) : whole;
  if (!guidance.branches()) return prediction;
  const int64_t half = prediction.size(0) / 2;
  const Tensor cond = prediction.slice(0, 0, half);
  Tensor out = ops::guide(cond, prediction.slice(0, half, 2 * half), guidance.scale,
                          guidance.channels * patch);
  if (guidance.rescale == 0) return out;
  return sample::rescale_guided(out, cond, guidance.rescale, tokens, guidance.channels * patch);
}

}  // namespace

Tensor forward(const nn::Denoiser& model, const nn::Conditioning& conditioning,
               const nn::TokenShape& shape, const Tensor& timestep, const Tensor& latent,
               Assembly& assembly, const DenoiseControl& control) {
  assembly.begin_step({0, 1, true, true});
  const tensor::Device device = device_of(assembly, latent);
  const nn::ContextPtr context = model.prepare(placed(conditioning, device), shape);
  const nn::StepContextPtr step = model.at(*context, timestep.to(device));
  const Tensor out = run_rows(model, *step, assembly.share.view(shape.prefix), latent.to(device),
                              assembly, control, true);
  assembly.finish();
  return out.to(latent.device());
}

Tensor denoise(const nn::Denoiser& model, const nn::Conditioning& conditioning,
               const nn::TokenShape& shape, const sample::Sampler& sampler,
               const Guidance& guidance, Tensor latent,
               const std::function<Tensor(int step)>& noise, Assembly& assembly,
               const DenoiseControl& control) {
  const nn::TokenView view = assembly.share.view(shape.prefix);
  const tensor::Device home = latent.device(), device = device_of(assembly, latent);
  const nn::ContextPtr context = model.prepare(placed(conditioning, device), shape);
  latent = latent.to(device);
  const auto& [pt, p, q] = model.geometry().patch_size;
  const bool watched = control.trace != nullptr;
  RecordedStep network(
      [&](const Tensor& time, const Tensor& input) {
        const nn::StepContextPtr step = model.at(*context, time);
        return run_blocks(model, *step, view, input, assembly, control);
      },
      sampler.steps() >= kWorthRecording && !watched && assembly.may_record(), assembly.local);
  sample::History history;
  for (int i = 0; i < sampler.steps(); ++i) {
    if (i > 0) tensor::settle(device);  // so that what on_step says has happened
    require(go_on(assembly, control), ErrorCode::cancelled, "stopped before step {} of {}", i + 1,
            sampler.steps());
    if (control.on_step) control.on_step(i, sampler.steps());
    const int steps = sampler.steps();
    assembly.begin_step({i, steps, assembly.plan.fresh(i, steps),
                         i + 1 == steps || assembly.plan.fresh(i + 1, steps)});
    const float scale = sampler.input_scale(i);
    const Tensor seen = scale == 1 ? latent : ops::blend(latent, scale, latent, 0);
    const Tensor input = guidance.branches() ? ops::concat_rows({seen, seen}) : seen;
    const Tensor out = network(timesteps(sampler.timestep(i), shape.rows, device), input);
    const Tensor prediction = guided(out, guidance, pt * p * q, assembly.share.tokens.size());
    const Tensor drawn = sampler.needs_noise(i) ? noise(i).to(device) : Tensor();
    latent = sampler.step(i, prediction, latent, drawn, history);
    if (control.trace) {
      show(control, fmt::format("model_output.{}", i), prediction);
      show(control, fmt::format("latents.{}", i + 1), latent);
    }
  }
  assembly.finish();
  return latent.to(home);
}

}  // namespace tessera::parallel
