#include "parallel/denoise.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "comm/collectives.h"
#include "nn/positions.h"
#include "ops/elementwise.h"
#include "ops/finite.h"
#include "ops/sampling.h"
#include "parallel/pass.h"
#include "parallel/recorded_step.h"
#include "parallel/reuse/rules.h"
#include "tensor/device_pool.h"

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
  nn::Conditioning result = conditioning;
  for (auto& [name, x] : result.tensors)
    if (!x.is_meta() && device != tensor::Device::meta) x = x.to(device);
  return result;
}

// The device of the model's tensors; a latent on meta puts everything on meta.
tensor::Device device_of(const Setup& setup, const Tensor& latent) {
  return latent.is_meta() ? tensor::Device::meta : setup.residence.device;
}

/// Rank 0's word before a step; show: send the latent, then wait for the next word.
enum class StepCommand : uint8_t { go, stop, show };

StepCommand broadcast_command(comm::Communicator* world, StepCommand command) {
  if (!world || world->size() == 1) return command;
  Tensor message = Tensor::zeros({1}, DType::u8);
  *message.data<uint8_t>() = static_cast<uint8_t>(command);
  return static_cast<StepCommand>(
      *comm::broadcast(*world, 0, message, comm::kControl).data<uint8_t>());
}

// Rank 0 decides, so all ranks stop before the same step; until then the caller may ask for the
// latent of all ranks.
bool go_on(const Setup& setup, const DenoiseControl& control, int step, int steps,
           const Tensor& latent) {
  const auto whole = [&] { return gathered(setup, latent.to(tensor::Device::cpu)); };
  StepCommand command = StepCommand::show;
  while (setup.rank != 0 && command == StepCommand::show)
    if ((command = broadcast_command(setup.world, StepCommand::go)) == StepCommand::show) whole();
  if (setup.rank != 0) return command == StepCommand::go;
  if (control.on_step && !control.stop.stop_requested())
    control.on_step(step, steps, [&] {
      broadcast_command(setup.world, StepCommand::show);
      return whole();
    });
  command = control.stop.stop_requested() ? StepCommand::stop : StepCommand::go;
  return broadcast_command(setup.world, command) == StepCommand::go;
}

// Conditional sequences first, then as many unconditional ones; under cfg=2 another rank holds the
// second half.
// `time`: 0 for noise, 1 for the sample.
Tensor guided(const Tensor& whole, const Guidance& guidance, float time, int64_t patch,
              int64_t tokens, const Setup& setup) {
  Tensor prediction = guidance.prediction_channels > 0
                          ? whole.slice(1, 0, guidance.prediction_channels * patch)
                          : whole;
  if (guidance.negated) prediction = ops::scale(prediction.contiguous(), -1);
  if (!guidance.branches()) return prediction;
  if (setup.branch_group)
    prediction = ops::concat_rows(
        comm::all_gather(*setup.branch_group, prediction.contiguous(), {"guidance", -1}).wait());
  const int64_t half = prediction.size(0) / 2;
  Tensor cond = prediction.slice(0, 0, half);
  if (time < guidance.from || time > guidance.until) return cond;
  const int64_t columns = guidance.channels * patch;
  Tensor out = ops::guide(cond, prediction.slice(0, half, 2 * half), guidance.scale, columns);
  if (guidance.rescale != 0)
    out = sample::rescale_guided(out, cond, guidance.rescale, tokens, columns);
  return guidance.limit == 0 ? out : sample::limit_guided(out, cond, guidance.limit, tokens);
}

/// Checks the latents of a run: after NaN or infinity, an error names the first part of the model
/// with a bad value.
class Guard {
 public:
  Guard(const nn::Denoiser& model, const nn::Context& context, const nn::TokenView& view,
        Setup& setup, int steps)
      : model_(model), context_(context), view_(view), setup_(setup), steps_(steps) {}

  /// Before step i: the input of the network.
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
  // Repeats the step after the last good latent, part by part; other ranks do not join, and stale
  // results are gone.
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

void put(const Tensor& to, const std::vector<nn::Range>& rows, const Tensor& from) {
  int64_t at = 0;
  for (const nn::Range& r : rows) {
    tensor::copy_into(to.slice(0, r.begin, r.end), from.slice(0, at, at + r.size()));
    at += r.size();
  }
}

// The model of a request with weights around the blocks split over ranks, or
// null.
std::unique_ptr<nn::Denoiser> spread_of(const nn::Denoiser& model, const Setup& setup) {
  return setup.gather ? model.with(*setup.gather) : nullptr;
}

Tensor like(const Tensor& x) { return Tensor::empty(x.shape(), x.dtype(), x.device()); }

/// The steps of a request on a rank: patches, or all tokens at once, through the rank's
/// stage.
class Steps {
 public:
  Steps(const nn::Denoiser& model, const sample::Sampler& sampler, const Guidance& guidance,
        const std::function<Tensor(int step)>& noise, Setup& setup, const DenoiseControl& control,
        const KeptLatent* kept_latent)
      : model_(model),
        sampler_(sampler),
        guidance_(guidance),
        noise_(noise),
        setup_(setup),
        control_(control),
        kept_latent_(kept_latent ? *kept_latent : KeptLatent{}),
        first_(setup.stages.first()),
        last_(setup.stages.last()) {}
  Tensor run(const nn::Conditioning& conditioning, Tensor latent);

 private:
  /// Tokens in one pass of the network: a patch, or all tokens (-1).
  struct TokenPart {
    int patch;
    Places places;
    std::vector<nn::Range> rows;  // rows of the latent
    sample::History history{};
  };
  TokenPart part(int patch) const {
    return {patch, places_of(model_, *context_, setup_.view(patch), setup_),
            setup_.partition.places(setup_.rank, patch)};
  }
  TokenPart& part_of(int patch) {
    return patch < 0 ? parts_.front() : parts_[static_cast<size_t>(patch) + 1];
  }
  void begin_reuse();
  void step(int i);
  void call(int i, const TokenPart& part, bool call_follows);
  Tensor network(const Tensor& time, const Tensor& input, const TokenPart& part);
  Tensor input_of(int i, const TokenPart& part);
  void advance(int i, const TokenPart& part, const Tensor& prediction);
  Tensor with_kept(int i, const Tensor& next, const std::vector<nn::Range>& rows) const;
  // The tensor for rank 0 to show: the last stage holds it.
  Tensor trace_tensor(const Tensor& x) const { return last_ ? x : latent_.slice(0, 0, 0); }

  const nn::Denoiser& model_;
  const sample::Sampler& sampler_;
  const Guidance& guidance_;
  const std::function<Tensor(int)>& noise_;
  Setup& setup_;
  const DenoiseControl& control_;
  KeptLatent kept_latent_;  // without tensors: nothing
  const bool first_, last_;
  tensor::Device device_ = tensor::Device::cpu;
  nn::ContextPtr context_;
  std::vector<TokenPart> parts_;  // all tokens, then each patch if there are several
  std::optional<RecordedStep> whole_;
  std::optional<Guard> guard_;
  Tensor latent_;
  // For the current step:
  nn::StepContextPtr at_;
  Tensor drawn_, next_, output_;
};

// The latent of a unit's tokens before step i, for each branch.
Tensor Steps::input_of(int i, const TokenPart& part) {
  while (const auto back = setup_.stages.latent_before(i, part.patch))
    put(latent_, part_of(back->patch).rows, back->rows);
  const Tensor x = part.patch < 0 ? latent_ : nn::take_ranges(latent_, part.rows);
  const float scale = sampler_.input_scale(i);
  const Tensor input = scale == 1 ? x : ops::blend(x, scale, x, 0);
  const bool both_branches = guidance_.branches() && !setup_.branch_group;
  return both_branches ? ops::concat_rows({input, input}) : input;
}

Tensor Steps::network(const Tensor& time, const Tensor& input, const TokenPart& part) {
  if (part.patch < 0) return (*whole_)(time, input);
  if (!at_) at_ = model_.at(*context_, time);
  return run_blocks(model_, *at_, part.places, input, setup_, control_);
}

// The latent of some rows behind step i with what stays of it.
Tensor Steps::with_kept(int i, const Tensor& next, const std::vector<nn::Range>& rows) const {
  if (!kept_latent_.mask.defined()) return next;
  const auto part = [&](const Tensor& x) {
    return next.size(0) == x.size(0) ? x : nn::take_ranges(x, rows);
  };
  const sample::Sampler::Noised at = sampler_.noised(i + 1);
  const Tensor stays = ops::blend(part(kept_latent_.clean), static_cast<float>(at.signal),
                                  part(kept_latent_.noise), static_cast<float>(at.noise));
  return ops::add(ops::multiply(part(kept_latent_.rest), stays),
                  ops::multiply(part(kept_latent_.mask), next));
}

// Each patch has its own history, even after a pass over all patches together.
void Steps::advance(int i, const TokenPart& part, const Tensor& prediction) {
  if (parts_.size() == 1) {
    latent_ = with_kept(i, sampler_.step(i, prediction, latent_, drawn_, parts_[0].history),
                        parts_[0].rows);
    output_ = prediction;
    return;
  }
  const Tensor dense = prediction.contiguous();
  if (!next_.defined()) next_ = like(latent_);
  for (int p = std::max(part.patch, 0); p < setup_.plan.patch_count(); ++p) {
    if (part.patch >= 0 && p > part.patch) break;
    TokenPart& patch = part_of(p);
    const auto take = [&](const Tensor& x) {
      return x.defined() ? nn::take_ranges(x, patch.rows) : Tensor();
    };
    const Tensor next = sampler_.step(i, part.patch < 0 ? take(dense) : dense, take(latent_),
                                      take(drawn_), patch.history);
    put(next_, patch.rows, with_kept(i, next, patch.rows));
  }
  if (!control_.trace) return;
  if (!output_.defined())
    output_ = Tensor::empty({latent_.size(0), dense.size(1)}, DType::f32, device_);
  put(output_, part.rows, dense);
}

// Runs a pass of the network, and the sampler's update of the latent.
void Steps::call(int i, const TokenPart& part, bool call_follows) {
  Stages& stages = setup_.stages;
  const bool goes_on = i + 1 < sampler_.steps();
  setup_.begin_call(call_follows);
  const Tensor input = first_ ? input_of(i, part) : Tensor();
  if (first_ && !last_ && goes_on) stages.expect_latent(i, part.patch);
  const nn::TokenShape shape = setup_.shape();
  const Tensor time = timesteps(sampler_.timestep(i), shape.batch, device_);
  if (part.patch < 0 && last_) guard_->keep(time, input);
  const Tensor out = network(time, input, part);
  if (!last_) return;
  const auto& [pt, p, q] = model_.geometry().patch_size;
  const Tensor prediction =
      guided(out, guidance_, 1 - sampler_.timestep(i) / sampler_.last_timestep(), pt * p * q,
             shape.tokens(), setup_);
  if (sampler_.needs_noise(i) && !drawn_.defined()) drawn_ = noise_(i).to(device_);
  advance(i, part, prediction);
  if (!first_ && goes_on)
    stages.return_latent(next_.defined() ? nn::take_ranges(next_, part.rows) : latent_);
}

void Steps::step(int i) {
  const int steps = sampler_.steps(), calls = setup_.plan.calls(i, steps);
  setup_.begin_step(
      {i, steps, setup_.plan.fresh(i, steps), i + 1 == steps || setup_.plan.fresh(i + 1, steps)});
  try {
    if (calls == 1) call(i, part_of(-1), i + 1 < steps);
    for (int p = 0; calls > 1 && p < calls; ++p)
      call(i, part_of(p), p + 1 < calls || i + 1 < steps);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::model) throw;
    throw Error(error.code(), fmt::format("step {} of {}{}: {}", i + 1, steps,
                                          setup_.world ? fmt::format(", rank {}", setup_.rank) : "",
                                          error.what()));
  }
  if (next_.defined()) latent_ = next_;
  if (last_) guard_->check(i, latent_);
  if (control_.trace) {
    show(control_, fmt::format("model_output.{}", i), trace_tensor(output_));
    show(control_, fmt::format("latents.{}", i + 1), trace_tensor(latent_));
  }
  at_ = nullptr;
  drawn_ = next_ = output_ = {};
}

void Steps::begin_reuse() {
  if (!setup_.step_cache) return;
  StepReuse::Run run{.geometry = model_.geometry(),
                     .reusable = model_.reusable(),
                     .timesteps = {},
                     .world = setup_.same_branch ? setup_.same_branch.get() : setup_.world,
                     .counted = setup_.partition.mesh().coordinate(setup_.rank, "tensor") == 0,
                     .meta = device_ == tensor::Device::meta};
  for (int i = 0; i < sampler_.steps(); ++i) run.timesteps.push_back(sampler_.timestep(i));
  for (int branch = 0; branch < (setup_.branches_in_turn ? 2 : 1); ++branch)
    setup_.reuse.push_back(make_step_reuse(*setup_.step_cache, run));
}

Tensor Steps::run(const nn::Conditioning& conditioning, Tensor latent) {
  const int steps = sampler_.steps();
  const tensor::Device home = latent.device();
  device_ = device_of(setup_, latent);
  context_ = model_.prepare(placed(conditioning, device_), setup_.shape());
  parts_.push_back(part(-1));
  for (int p = 0; setup_.plan.patch_count() > 1 && p < setup_.plan.patch_count(); ++p)
    parts_.push_back(part(p));
  latent_ = latent.to(device_);
  for (Tensor* x :
       {&kept_latent_.mask, &kept_latent_.rest, &kept_latent_.clean, &kept_latent_.noise})
    if (x->defined()) *x = x->to(device_);
  latent = {};
  if (first_ && !last_) {  // written in place
    const Tensor initial_latent = latent_;
    latent_ = like(initial_latent);
    tensor::copy_into(latent_, initial_latent);
  }
  begin_reuse();
  const nn::TokenView view = setup_.view();
  guard_.emplace(model_, *context_, view, setup_, steps);
  whole_.emplace(
      [&](const Tensor& time, const Tensor& input) {
        return run_blocks(model_, *model_.at(*context_, time), part_of(-1).places, input, setup_,
                          control_);
      },
      steps >= kWorthRecording && !control_.trace && setup_.may_record(), setup_.experts.get());
  for (int i = 0; i < steps; ++i) {
    if (i > 0) tensor::settle(device_);  // on_step then reports completed work
    if (control_.on_rank_step) control_.on_rank_step(i);
    require(go_on(setup_, control_, i, steps, trace_tensor(latent_)), ErrorCode::cancelled,
            "stopped before step {} of {}", i + 1, steps);
    step(i);
  }
  setup_.finish();
  return trace_tensor(latent_).to(home);
}

}  // namespace

Tensor gathered(const Setup& setup, const Tensor& own_rows, Rows rows, int stage) {
  if (!setup.world) return own_rows;
  const auto parts =
      comm::gather(*setup.world, 0, own_rows.contiguous(), {"gather", -1, TrafficKind::report});
  return parts.empty() ? Tensor() : setup.partition.join(parts, rows, stage);
}

Tensor forward(const nn::Denoiser& model, const nn::Conditioning& conditioning,
               const Tensor& timestep, const Tensor& latent, Setup& setup,
               const DenoiseControl& control) {
  const auto spread = spread_of(model, setup);
  const nn::Denoiser& network = spread ? *spread : model;
  setup.begin_step({0, 1, true, true});
  setup.begin_call(false);
  const tensor::Device device = device_of(setup, latent);
  const nn::ContextPtr context = network.prepare(placed(conditioning, device), setup.shape());
  const nn::StepContextPtr step = network.at(*context, timestep.to(device));
  const nn::PlacementPtr placement = network.place(*context, setup.view());
  const Tensor out =
      run_rows(network, *step, *placement, latent.to(device), setup, control, Watch::blocks);
  setup.finish();
  return out.defined() ? out.to(latent.device()) : latent.slice(0, 0, 0);
}

Tensor denoise(const nn::Denoiser& model, const nn::Conditioning& conditioning,
               const sample::Sampler& sampler, const Guidance& guidance, Tensor latent,
               const std::function<Tensor(int step)>& noise, Setup& setup,
               const DenoiseControl& control, const KeptLatent* kept_latent) {
  const auto spread = spread_of(model, setup);
  return Steps(spread ? *spread : model, sampler, guidance, noise, setup, control, kept_latent)
      .run(conditioning, std::move(latent));
}

}  // namespace tessera::parallel
