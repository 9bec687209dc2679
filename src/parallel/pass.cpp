#include "parallel/pass.h"

#include "base/fail.h"
#include "ops/elementwise.h"
#include "ops/finite.h"

namespace tessera::parallel {

using tensor::Tensor;

namespace {

void check_hidden(const nn::Hidden& hidden, const std::string& part) {
  ops::require_finite(hidden.tokens.body, part);
  ops::require_finite(hidden.tokens.prefix, part);
}

}  // namespace

void show(const DenoiseControl& control, const std::string& name, const Tensor& x) {
  control.trace(name, x.is_meta() ? x : x.to(tensor::Device::cpu));
}

Tensor run_rows(const nn::Denoiser& model, const nn::StepContext& step,
                const nn::Placement& placement, const Tensor& latent, Setup& setup,
                const DenoiseControl& control, Watch watch, int half, StepReuse* reuse) {
  if (const Tensor prediction = reuse ? reuse->predicted() : Tensor(); prediction.defined())
    return prediction;
  Stages& stages = setup.stages;
  nn::Hidden hidden =
      stages.first() ? model.embed(placement, latent) : stages.arrived(placement.view);
  const bool trace = watch == Watch::blocks && control.trace, check = watch == Watch::numbers;
  if (trace) show(control, "embedding", hidden.tokens.body);
  if (check) check_hidden(hidden, "the embedding");
  const nn::Seams own = setup.seams(half);
  const nn::Seams seams{reuse ? reuse->attention(own.attention) : own.attention, own.experts,
                        own.reduce, own.gather};
  const std::function<void(int)> run = [&](int b) {
    require(!control.stop.stop_requested(), ErrorCode::cancelled, "stopped before block {}", b);
    stages.bring(b, hidden);
    model.block(b, step, placement, hidden, seams);
    if (setup.world) setup.world->advance();
    if (check) check_hidden(hidden, "'" + model.block_name(b) + "'");
    stages.leave(b, hidden);
    if (!trace) return;
    const std::string name = model.block_name(b);
    show(control, name, hidden.tokens.body);
    if (hidden.tokens.prefix.defined()) show(control, name + ".context", hidden.tokens.prefix);
  };
  if (reuse) {
    const std::function<void(int)> ahead = [&](int end) {
      if (setup.gather) setup.gather->until(end);
    };
    reuse->blocks({model, step, placement, seams, run, ahead, hidden});
  } else {
    for (int64_t b = setup.blocks.begin; b < setup.blocks.end; ++b) run(static_cast<int>(b));
  }
  if (!stages.last()) {
    stages.hand_on(hidden);
    return {};
  }
  const Tensor out = model.head(step, placement, hidden);
  if (check) ops::require_finite(out, "the head");
  if (reuse) reuse->keep(out);
  return out;
}

Places places_of(const nn::Denoiser& model, const nn::Context& context, const nn::TokenView& view,
                 const Setup& setup) {
  if (!setup.two_batch_overlap && !setup.branches_in_turn) return {model.place(context, view)};
  const size_t sequences = view.sequences.size(), middle = (sequences + 1) / 2;
  return {model.place(context, take_sequences(view, 0, middle)),
          model.place(context, take_sequences(view, middle, sequences))};
}

// A rank without sequences in a half takes part in all exchanges.
Tensor run_blocks(const nn::Denoiser& model, const nn::StepContext& step, const Places& places,
                  const Tensor& latent, Setup& setup, const DenoiseControl& control) {
  // A check on the host costs a hundredth of the computation; on a device it would wait.
  const tensor::Device device = latent.defined() ? latent.device() : setup.residence.device;
  const Watch watch = device == tensor::Device::cpu ? Watch::numbers : Watch::nothing;
  const auto reuse = [&](size_t i) {
    return i < setup.reuse.size() ? setup.reuse[i].get() : nullptr;
  };
  if (places.size() == 1)
    return run_rows(model, step, *places[0], latent, setup, control, watch, 0, reuse(0));
  const int64_t first = nn::token_count(places[0]->view.body);
  const Tensor latents[] = {latent.slice(0, 0, first), latent.slice(0, first, latent.size(0))};
  std::vector<Tensor> out(2);
  for (size_t i = 0; i < 2 && setup.branches_in_turn; ++i)
    out[i] = run_rows(model, step, *places[i], latents[i], setup, control, watch, 0, reuse(i));
  if (setup.branches_in_turn) return ops::concat_rows(out);
  setup.two_batch_overlap->run([&](int i) {
    const auto at = static_cast<size_t>(i);
    out[at] = run_rows(model, step, *places[at], latents[at], setup, control, watch, i);
  });
  return ops::concat_rows(out);
}

}  // namespace tessera::parallel
