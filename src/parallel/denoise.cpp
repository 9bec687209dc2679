#include "parallel/denoise.h"

#include <utility>

#include "base/fail.h"
#include "comm/collectives.h"
#include "ops/elementwise.h"
#include "ops/finite.h"
#include "ops/sampling.h"
#include "parallel/recorded_step.h"
#include "tensor/device_runtime.h"

namespace tessera::parallel {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr int kWorthRecording = 4;  // steps
constexpr int kBetweenChecks = 4;   // steps, of latents that are not on the host

Tensor timesteps(float value, int batch, tensor::Device device) {
  if (device == tensor::Device::meta) return Tensor::empty({batch}, DType::f32, device);
  Tensor t = Tensor::empty({batch}, DType::f32);
  std::fill_n(t.data<float>(), batch, value);
  return t.to(device);
}

nn::Conditioning placed(const nn::Conditioning& conditioning, tensor::Device device) {
  nn::Conditioning there = conditioning;
  for (auto& [name, x] : there.tensors)
    if (!x.is_meta() && device != tensor::Device::meta) x = x.to(device);
  return there;
}

// Where the model's tensors are; a latent on meta makes all of it meta.
tensor::Device device_of(const Setup& setup, const Tensor& latent) {
  return latent.is_meta() ? tensor::Device::meta : setup.residence.device;
}

void show(const DenoiseControl& control, const std::string& name, const Tensor& x) {
  control.trace(name, x.is_meta() ? x : x.to(tensor::Device::cpu));
}

enum class Watch { nothing, blocks, numbers };  // blocks: for control.trace

void check_hidden(const nn::Hidden& hidden, const std::string& part) {
  ops::require_finite(hidden.tokens.body, part);
  ops::require_finite(hidden.tokens.prefix, part);
}

Tensor run_rows(const nn::Denoiser& model, const nn::StepContext& step,
                const nn::Placement& placement, const Tensor& latent, Setup& setup,
                const DenoiseControl& control, Watch watch, int half = 0) {
  nn::Hidden hidden = model.embed(placement, latent);
  const bool trace = watch == Watch::blocks && control.trace, check = watch == Watch::numbers;
  if (trace) show(control, "embedding", hidden.tokens.body);
  if (check) check_hidden(hidden, "the embedding");
  for (int64_t b = setup.blocks.begin; b < setup.blocks.end; ++b) {
    require(!control.stop.stop_requested(), ErrorCode::cancelled, "stopped before block {}", b);
    model.block(static_cast<int>(b), step, placement, hidden, setup.seams(half));
    if (setup.world) setup.world->advance();
    if (check) check_hidden(hidden, "'" + model.block_name(static_cast<int>(b)) + "'");
    if (!trace) continue;
    const std::string name = model.block_name(static_cast<int>(b));
    show(control, name, hidden.tokens.body);
    if (hidden.tokens.prefix.defined()) show(control, name + ".context", hidden.tokens.prefix);
  }
  const Tensor out = model.head(step, placement, hidden);
  if (check) ops::require_finite(out, "the head");
  return out;
}

using Places = std::vector<nn::PlacementPtr>;

// All sequences at once, or the two halves that go in turn.
Places places_of(const nn::Denoiser& model, const nn::Context& context, const nn::TokenView& view,
                 const Setup& setup) {
  if (!setup.turns) return {model.place(context, view)};
  const size_t sequences = view.sequences.size(), cut = (sequences + 1) / 2;
  return {model.place(context, take_sequences(view, 0, cut)),
          model.place(context, take_sequences(view, cut, sequences))};
}

// A rank without sequences for a half goes through its exchanges all the same.
Tensor run_blocks(const nn::Denoiser& model, const nn::StepContext& step, const Places& places,
                  const Tensor& latent, Setup& setup, const DenoiseControl& control) {
  // Looking at numbers costs a host a hundredth of making them; from a device it would wait.
  const Watch watch = latent.device() == tensor::Device::cpu ? Watch::numbers : Watch::nothing;
  if (places.size() == 1) return run_rows(model, step, *places[0], latent, setup, control, watch);
  const int64_t first = nn::token_count(places[0]->view.body);
  const Tensor latents[] = {latent.slice(0, 0, first), latent.slice(0, first, latent.size(0))};
  std::vector<Tensor> out(2);
  setup.turns->run([&](int i) {
    const auto at = static_cast<size_t>(i);
    out[at] = run_rows(model, step, *places[at], latents[at], setup, control, watch, i);
  });
  return ops::concat_rows(out);
}

/// What rank 0 says before a step; show: send it your latent, and hear what it says next.
enum class Word : uint8_t { go, stop, show };

Word said(comm::Communicator* world, Word word) {
  if (!world || world->size() == 1) return word;
  Tensor message = Tensor::zeros({1}, DType::u8);
  *message.data<uint8_t>() = static_cast<uint8_t>(word);
  return static_cast<Word>(*comm::broadcast(*world, 0, message, {"go", -1}).data<uint8_t>());
}

// Rank 0 decides, so that all ranks stop before the same step; until then its caller may ask for
// the latent of all of them.
bool go_on(const Setup& setup, const DenoiseControl& control, int step, int steps,
           const Tensor& latent) {
  const auto whole = [&] { return gathered(setup, latent.to(tensor::Device::cpu)); };
  Word word = Word::show;
  while (setup.rank != 0 && word == Word::show)
    if ((word = said(setup.world, Word::go)) == Word::show) whole();
  if (setup.rank != 0) return word == Word::go;
  if (control.on_step && !control.stop.stop_requested())
    control.on_step(step, steps, [&] {
      said(setup.world, Word::show);
      return whole();
    });
  word = control.stop.stop_requested() ? Word::stop : Word::go;
  return said(setup.world, word) == Word::go;
}

// Conditional sequences first, then as many unconditional ones; under cfg=2 another rank has one of
// the two.
Tensor guided(const Tensor& whole, const Guidance& guidance, int64_t patch, int64_t tokens,
              const Setup& setup) {
  Tensor prediction = guidance.kept > 0 ? whole.slice(1, 0, guidance.kept * patch) : whole;
  if (!guidance.branches()) return prediction;
  if (setup.branch_group)
    prediction = ops::concat_rows(
        comm::all_gather(*setup.branch_group, prediction.contiguous(), {"guidance", -1}).wait());
  const int64_t half = prediction.size(0) / 2;
  const Tensor cond = prediction.slice(0, 0, half);
  Tensor out = ops::guide(cond, prediction.slice(0, half, 2 * half), guidance.scale,
                          guidance.channels * patch);
  if (guidance.rescale == 0) return out;
  return sample::rescale_guided(out, cond, guidance.rescale, tokens, guidance.channels * patch);
}

/// The latents of a run: when they are no numbers any more, an error says which part of the model
/// made the first that was none.
class Guard {
 public:
  Guard(const nn::Denoiser& model, const nn::Context& context, const nn::TokenView& view,
        Setup& setup, int steps)
      : model_(model), context_(context), view_(view), setup_(setup), steps_(steps) {}

  /// Before step i: what the network is to be given.
  void keep(const Tensor& time, const Tensor& input) {
    if (good_.defined()) return;
    time_ = time;
    good_ = input;
  }
  /// After step i.
  void check(int i, const Tensor& latent) {
    const bool waits = tensor::is_gpu(latent.device());
    if (waits && (i + 1) % kBetweenChecks != 0 && i + 1 != steps_) return;
    if (!ops::all_finite(latent)) find(i);
    good_ = {};
  }

 private:
  // The step after the last good latent once more, part by part; other ranks would not join in, and
  // old results have gone.
  [[noreturn]] void find(int i) {
    if ((!setup_.world || setup_.world->size() == 1) && !setup_.plan.stale())
      run_rows(model_, *model_.at(context_, time_), *model_.place(context_, view_), good_, setup_,
               {}, Watch::numbers);
    fail(ErrorCode::model,
         "step {} of {} leaves no numbers (NaN or infinity) in the latent: use less guidance or "
         "another scheduler; if that is the same, the model's files are damaged",
         i + 1, steps_);
  }
  const nn::Denoiser& model_;
  const nn::Context& context_;
  const nn::TokenView& view_;
  Setup& setup_;
  int steps_;
  Tensor time_, good_;
};

}  // namespace

Tensor gathered(const Setup& setup, const Tensor& mine) {
  if (!setup.world) return mine;
  const auto parts = comm::gather(*setup.world, 0, mine.contiguous(), {"gather", -1});
  return parts.empty() ? Tensor() : setup.partition.join(parts);
}

Tensor forward(const nn::Denoiser& model, const nn::Conditioning& conditioning,
               const Tensor& timestep, const Tensor& latent, Setup& setup,
               const DenoiseControl& control) {
  setup.begin_step({0, 1, true, true});
  const tensor::Device device = device_of(setup, latent);
  const nn::ContextPtr context = model.prepare(placed(conditioning, device), setup.shape());
  const nn::StepContextPtr step = model.at(*context, timestep.to(device));
  const nn::PlacementPtr placement = model.place(*context, setup.view());
  const Tensor out =
      run_rows(model, *step, *placement, latent.to(device), setup, control, Watch::blocks);
  setup.finish();
  return out.to(latent.device());
}

Tensor denoise(const nn::Denoiser& model, const nn::Conditioning& conditioning,
               const sample::Sampler& sampler, const Guidance& guidance, Tensor latent,
               const std::function<Tensor(int step)>& noise, Setup& setup,
               const DenoiseControl& control) {
  const nn::TokenShape shape = setup.shape();
  const nn::TokenView view = setup.view();
  const tensor::Device home = latent.device(), device = device_of(setup, latent);
  const nn::ContextPtr context = model.prepare(placed(conditioning, device), shape);
  const Places places = places_of(model, *context, view, setup);
  latent = latent.to(device);
  const auto& [pt, p, q] = model.geometry().patch_size;
  const bool watched = control.trace != nullptr;
  RecordedStep network(
      [&](const Tensor& time, const Tensor& input) {
        return run_blocks(model, *model.at(*context, time), places, input, setup, control);
      },
      sampler.steps() >= kWorthRecording && !watched && setup.may_record(), setup.experts.get());
  sample::History history;
  Guard guard(model, *context, view, setup, sampler.steps());
  for (int i = 0; i < sampler.steps(); ++i) {
    if (i > 0) tensor::settle(device);  // so that what on_step says has happened
    const int steps = sampler.steps();
    require(go_on(setup, control, i, steps, latent), ErrorCode::cancelled,
            "stopped before step {} of {}", i + 1, steps);
    setup.begin_step(
        {i, steps, setup.plan.fresh(i, steps), i + 1 == steps || setup.plan.fresh(i + 1, steps)});
    const float scale = sampler.input_scale(i);
    const Tensor seen = scale == 1 ? latent : ops::blend(latent, scale, latent, 0);
    const bool both = guidance.branches() && !setup.branch_group;
    const Tensor input = both ? ops::concat_rows({seen, seen}) : seen;
    const Tensor time = timesteps(sampler.timestep(i), shape.batch, device);
    guard.keep(time, input);
    const Tensor out = network(time, input);
    const Tensor prediction = guided(out, guidance, pt * p * q, shape.tokens(), setup);
    const Tensor drawn = sampler.needs_noise(i) ? noise(i).to(device) : Tensor();
    latent = sampler.step(i, prediction, latent, drawn, history);
    guard.check(i, latent);
    if (control.trace) {
      show(control, fmt::format("model_output.{}", i), prediction);
      show(control, fmt::format("latents.{}", i + 1), latent);
    }
  }
  setup.finish();
  return latent.to(home);
}

}  // namespace tessera::parallel
