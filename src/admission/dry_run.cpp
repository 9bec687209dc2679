#include "admission/dry_run.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <utility>

#include "base/stop.h"
#include "cluster/agree.h"
#include "diffusion/decode.h"
#include "diffusion/decode_pipeline.h"
#include "diffusion/denoise.h"
#include "diffusion/encode_images.h"
#include "parallel/experts/exchange.h"

namespace tessera::admission {
namespace {

using tensor::Tensor;

constexpr int64_t kRemembered = 4;  // steps with samplers' and experts' state
constexpr int64_t kFactors = 6;     // steps until a step cache holds all its differences

/// The first steps of a sampler.
class FirstSteps final : public sample::Sampler {
 public:
  FirstSteps(const sample::Sampler& sampler, int steps) : all_(sampler), steps_(steps) {}
  int steps() const override { return steps_; }
  float timestep(int i) const override { return all_.timestep(i); }
  bool needs_noise(int i) const override { return all_.needs_noise(i); }
  int noise_draws(int i) const override { return all_.noise_draws(i); }
  float initial_scale() const override { return all_.initial_scale(); }
  bool whole_samples() const override { return all_.whole_samples(); }
  float input_scale(int i) const override { return all_.input_scale(i); }
  Noised noised(int i) const override { return all_.noised(i); }
  Tensor step(int i, const Tensor& prediction, const Tensor& x, const Tensor& noise,
              sample::History& history) const override {
    return all_.step(i, prediction, x, noise, history);
  }

 private:
  const sample::Sampler& all_;
  int steps_;
};

// The image that a job starts from as if it were encoded.
diffusion::SourceImage encoded_on_meta(const diffusion::Job& job) {
  const nn::TokenLayout& layout = job.planned.layout;
  const diffusion::SourceImage& from = *job.asked.source;
  diffusion::SourceImage source;
  source.takes_mean = from.takes_mean;
  source.mean = source.logvar = Tensor::empty({1, layout.channels, layout.size[1], layout.size[2]},
                                              tensor::DType::f32, tensor::Device::meta);
  if (from.mask.defined()) source.mask = from.mask.to(tensor::Device::meta);
  return source;
}

// The inputs of denoising, without data.
diffusion::RequestInputs on_meta(const diffusion::Job& job) {
  diffusion::RequestInputs inputs{.adapters = job.asked.adapters};
  for (const auto& [name, x] : job.asked.conditioning.tensors) {
    const bool says_lengths = name.find("mask") != std::string::npos;  // keeps elements
    inputs.conditioning.tensors[name] = says_lengths ? x : x.to(tensor::Device::meta);
  }
  for (const auto& [name, x] : job.asked.given) inputs.given[name] = x.to(tensor::Device::meta);
  if (job.asked.source) inputs.source = encoded_on_meta(job);
  return inputs;
}

std::vector<Inspection::Rank> ranks_of(const Report& report, const Plan& plan,
                                       const nn::Geometry& geometry, const diffusion::Job& run,
                                       int steps) {
  const parallel::Partition partition(plan, run.workload());
  std::vector<Inspection::Rank> ranks;
  for (int r = 0; r < plan.world(); ++r)
    ranks.push_back(predicted(report.per_rank[static_cast<size_t>(r)],
                              parallel::experts_of(plan, geometry, r),
                              nn::token_count(partition.view(r).body), steps));
  return ranks;
}

// The first steps of a job, ready to be denoised on the ranks of a stage.
diffusion::Job first_steps_of(runtime::ModelState& stage, const diffusion::Job& job, int steps) {
  diffusion::Job run{on_meta(job), job.planned, job.admitted};
  run.planned.sampler = std::make_shared<FirstSteps>(*job.planned.sampler, steps);
  run.counted.meters = runtime::RunMeters(stage.workers.ranks.size());
  parallel::require_runnable(stage.options.plan, stage.geometry(), run.workload());
  return run;
}

// A job's last image or video, for a decoder.
diffusion::Job last_of(const diffusion::Job& job, size_t ranks) {
  diffusion::Job sample_job{.planned = job.planned};
  sample_job.planned.labels.resize(1);
  sample_job.counted.meters = runtime::RunMeters(ranks);
  return sample_job;
}

Tensor latents_of(const diffusion::Job& job) {
  return Tensor::empty(
      {job.samples() * job.planned.layout.tokens(), job.planned.layout.token_channels()},
      tensor::DType::f32, tensor::Device::meta);
}

/// Bytes of a job's other images or videos while the last is decoded; and of all, with the latents,
/// when all numbers are joined.
struct DecodingMemory {
  DecodingMemory(const diffusion::Job& job, const Tensor& latents,
                 const diffusion::Decoded& result) {
    int64_t pixels = 0;
    for (const Tensor& image : result.pixels) pixels += image.bytes();
    const int64_t numbers = job.planned.traced ? result.numbers.bytes() : 0;
    others = (job.samples() - 1) * (pixels + numbers);
    joining = latents.bytes() + job.samples() * (pixels + 2 * numbers);
  }
  int64_t others = 0, joining = 0;
};

/// The executed part of a job: its first steps, for all samples or its first parts.
struct PartialRun {
  int steps = 0;                 ///< total steps
  int samples = 0;               ///< executed samples
  diffusion::Decoded decoded{};  ///< by separate decoding ranks
};

// Two parts: one is decoded while the other is denoised.
PartialRun try_halves(runtime::ModelState& stage, const RunControl& control,
                      const diffusion::Job& job, diffusion::Trace& trace, Report& report) {
  const GenerateRequest request;
  std::deque<diffusion::QueuedRequest> orders;
  diffusion::QueuedRequest& order = orders.emplace_back(request, job);
  PartialRun partial;
  for (const nn::Range samples : diffusion::parts_of(stage.options.plan, job.samples())) {
    order.parts.push_back(diffusion::part_of(job, samples));
    partial.samples += order.parts.back().samples();
    if (order.parts.size() == 2) break;
  }
  const diffusion::SharedDecoder decoder =
      diffusion::load_decoder(stage, job, job.counted.meters.memory);
  diffusion::run_stages(stage, control, orders, decoder);
  trace = std::move(order.trace);
  report = std::move(order.result.report);
  partial.steps = job.planned.sampler->steps() * static_cast<int>(order.parts.size());
  partial.decoded = std::move(order.decoded);
  return partial;
}

// For the denoising ranks.
diffusion::Work work_of_denoisers(const diffusion::Job& run, const Plan& plan) {
  if (!plan.vae_apart) return run.counted.meters.all->entries();
  tensor::Meter sum;
  for (int r = 0; r < plan.world(); ++r)
    sum.add(run.counted.meters.ranks[static_cast<size_t>(r)].work->entries());
  return sum.entries();
}

// Adds separate decoding ranks, and rank 0's memory for samples without execution.
void add_decoders(const RunOptions& options, const diffusion::Job& job, const PartialRun& partial,
                  const Report& report, DryRun& prediction) {
  int64_t weights = 0, sum = 0, most = 0;
  for (size_t r = prediction.ranks.size(); r < report.per_rank.size(); ++r) {
    const MemoryPeaks& peak = report.per_rank[r].decode_peak_bytes;
    prediction.ranks.push_back({.decode = peak.total});
    weights = peak.weights;
    sum += peak.total - peak.weights;
    most = std::max(most, peak.total);
  }
  int64_t sample_bytes = latents_of(job).bytes() / job.samples();
  for (const Tensor& image : partial.decoded.pixels)
    sample_bytes += image.bytes() / partial.samples;
  if (job.planned.traced) sample_bytes += partial.decoded.numbers.bytes() / partial.samples;
  const int64_t other_bytes = (job.samples() - partial.samples) * sample_bytes;
  prediction.ranks[0].activations += other_bytes;
  prediction.ranks[0].total += other_bytes;
  prediction.decoders = weights;
  prediction.results = job.samples() * sample_bytes;
  const bool all_here = cluster::Ranks::of(options).all_here();
  prediction.decoding = all_here ? sum + weights : 0;
  prediction.process =
      std::max(prediction.process + other_bytes + prediction.decoding, all_here ? 0 : most);
}

}  // namespace

// Plans count their periods from the last step.
int steps_until_they_repeat(const Plan& plan, const diffusion::Job& job) {
  const int steps = job.planned.sampler->steps();
  const int64_t period =
      std::lcm(int64_t{std::max(plan.stride, 1)}, int64_t{std::max(plan.sync_every, 1)});
  const int64_t least = (job.planned.step_cache ? kFactors : kRemembered) +
                        (plan.stale() ? plan.warmup + plan.cooldown + period : 0);
  return static_cast<int>(steps <= least ? steps : least + (steps - least) % period);
}

diffusion::Work mean_work(diffusion::Work work, int steps) {
  for (auto& [op, entry] : work) {
    entry.flops /= steps;
    entry.bytes /= steps;
  }
  return work;
}

Inspection::Rank predicted(const Report::Rank& report, int experts, int64_t tokens, int steps) {
  const MemoryPeaks& peak = report.peak_bytes;
  return {.experts = experts,
          .tokens = tokens,
          .weights = peak.weights,
          .activations = peak.activations,
          .kv = peak.kv,
          .buffers = peak.buffers,
          .total = peak.total,
          .flops = report.flops / steps,
          .sent = report.sent_bytes / steps};
}

void add_process(const RunOptions& options,
                 const std::function<std::shared_ptr<const void>(int rank)>& make,
                 DryRun& prediction) {
  const bool all_here = cluster::Ranks::of(options).all_here();
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  std::vector<std::shared_ptr<const void>> networks;  // shared by several slices
  std::map<int, std::weak_ptr<const void>> portions;  // shared by ranks with equal portions
  int64_t sum = 0;
  for (const Inspection::Rank& rank : prediction.ranks) {
    base::check_stop();
    if (!all_here) networks.clear();
    const auto number = static_cast<int>(&rank - prediction.ranks.data());
    auto& portion = portions[parallel::portion_number(options.plan, number)];
    networks.push_back(portion.lock());
    if (!networks.back()) portion = networks.back() = make(number);
    prediction.process = std::max(prediction.process, rank.total);
    prediction.weights = std::max(prediction.weights, rank.weights);
    sum += rank.total - rank.weights;
  }
  if (all_here && prediction.ranks.size() > 1) {
    prediction.weights = scope.memory->current(tensor::MemoryClass::weights);
    prediction.process = sum + prediction.weights;
  }
  prediction.process =
      std::max(prediction.process, scope.memory->peak());  // during their construction
}

int64_t input_bytes(const diffusion::Job& job) {
  int64_t bytes = 0;
  for (const auto* tensors : {&job.asked.conditioning.tensors, &job.asked.given})
    for (const auto& [name, x] : *tensors) bytes += x.bytes();
  for (const diffusion::SourceImage& image : job.asked.references) bytes += image.bytes();
  return bytes + (job.asked.source ? job.asked.source->bytes() : 0) +
         (job.asked.adapters ? job.asked.adapters->bytes : 0);
}

// Options of a single rank with the same forms of weights.
RunOptions forms_of(const runtime::ModelState& state) {
  RunOptions options;
  options.precision = state.options.precision;
  options.quantise_rules = state.options.quantise_rules;
  return options;
}

DryRun dry_run(const runtime::ModelState& state, const RunOptions& options,
               const diffusion::Job& job) {
  runtime::ModelState stage;
  runtime::copy_for_dry_run(state, options, stage);
  const tensor::BindScope bind(stage.workers.scope());
  diffusion::Job run = first_steps_of(stage, job, steps_until_they_repeat(options.plan, job));
  diffusion::load_ranks(stage, run);
  diffusion::Trace trace(run, run.planned.traced);
  Report report;
  RunControl control;
  control.stop = base::current_stop();
  int64_t between = 0;
  control.on_progress = [&](const Progress&) {
    between = std::max(between, tensor::current_scope().memory->current());
  };
  PartialRun partial{run.planned.sampler->steps(), run.samples()};
  if (options.plan.vae_apart)
    partial = try_halves(stage, control, run, trace, report);
  else
    diffusion::denoise(stage, {}, control, run, trace, report);
  DryRun prediction{.ranks = ranks_of(report, options.plan, stage.geometry(), run, partial.steps),
                    .work = mean_work(work_of_denoisers(run, options.plan), partial.steps)};
  prediction.traced = trace.bytes() / run.planned.sampler->steps() * job.planned.sampler->steps() /
                      partial.samples * job.samples();
  const int64_t later = prediction.traced - trace.bytes();  // for steps outside the dry run
  prediction.ranks[0].activations += later;
  prediction.ranks[0].total += later;
  for (const auto& [tag, entry] : report.traffic)
    if (entry.kind == TrafficKind::plan)
      prediction.messages += double(entry.messages) / partial.steps;
  const auto weights = stage.weights_of("transformer");
  add_process(
      options,
      [&](int rank) -> std::shared_ptr<const void> {
        return stage.make_transformer(rank, job.admitted.resident_blocks, weights,
                                      job.asked.adapters.get());
      },
      prediction);
  if (options.plan.vae_apart) add_decoders(options, job, partial, report, prediction);
  prediction.process += input_bytes(job);
  // Other threads may be anywhere in their steps.
  prediction.between =
      prediction.ranks.size() > 1 ? prediction.process : between + later + input_bytes(job);
  return prediction;
}

DryRun dry_run(const runtime::ModelState& state, const diffusion::Job& job) {
  return dry_run(state, state.options, job);
}

std::vector<Inspection::Rank> dry_run_ranks(const runtime::ModelState& state,
                                            const diffusion::Job& job, int steps) {
  runtime::ModelState stage;
  runtime::copy_for_dry_run(state, state.options, stage);
  const tensor::BindScope bind(stage.workers.scope());
  diffusion::Job run = first_steps_of(stage, job, steps);
  // Sums over all ranks are not wanted, and each message would wait for their locks.
  for (runtime::RunMeters::Rank& rank : run.counted.meters.ranks)
    rank = {std::make_shared<tensor::Meter>(), std::make_shared<tensor::MemoryTracker>()};
  diffusion::load_ranks(stage, run);
  diffusion::Trace trace(run, run.planned.traced);
  Report report;
  RunControl control;
  control.stop = base::current_stop();
  diffusion::denoise(stage, {}, control, run, trace, report);
  return ranks_of(report, state.options.plan, stage.geometry(), run, steps);
}

diffusion::MemoryNeed dry_run_decode(const runtime::ModelState& state, const diffusion::Job& job,
                                     const std::optional<models::Tiling>& tiles) {
  runtime::ModelState stage;
  runtime::copy_for_dry_run(state, forms_of(state), stage);
  const diffusion::Job sample_job = last_of(job, 0);
  const tensor::BindScope bind(stage.workers.scope(-1, &sample_job.counted.meters));
  const Tensor latents = latents_of(job);
  const DecodingMemory memory(
      job, latents, diffusion::decode(stage, {}, sample_job, tiles, latents, job.planned.traced));
  const MemoryPeaks peak = runtime::peaks_of(*sample_job.counted.meters.memory);
  return {peak.weights, std::max(peak.activations + memory.others, memory.joining),
          std::max(peak.total + memory.others, peak.weights + memory.joining), 0,
          sample_job.counted.meters.all->entries()};
}

diffusion::MemoryNeed dry_run_encode(const runtime::ModelState& state, const diffusion::Job& job,
                                     const diffusion::SourceImage& image,
                                     const std::optional<models::Tiling>& tiles) {
  runtime::ModelState stage;
  runtime::copy_for_dry_run(state, forms_of(state), stage);
  diffusion::Job sample_job{.planned = job.planned};
  sample_job.asked.source.emplace();
  sample_job.asked.source->pixels = image.pixels.to(tensor::Device::meta);
  sample_job.asked.source->tiles = tiles;
  diffusion::encode_images(stage, {}, sample_job);
  const MemoryPeaks peak = runtime::peaks_of(*sample_job.counted.meters.memory);
  return {peak.weights, peak.activations, peak.total, 0, sample_job.counted.meters.all->entries()};
}

diffusion::MemoryNeed dry_run_bands(const runtime::ModelState& state, const diffusion::Job& job,
                                    std::vector<Inspection::Rank>& ranks) {
  runtime::ModelState stage;
  RunOptions options = forms_of(state);
  options.plan.data = options.plan.vae = state.options.plan.vae;
  runtime::copy_for_dry_run(state, options, stage);
  const diffusion::Job sample_job = last_of(job, stage.workers.ranks.size());
  const tensor::BindScope bind(stage.workers.scope(-1, &sample_job.counted.meters));
  const Tensor latents = latents_of(job);
  const diffusion::Decoded result =
      diffusion::decode_in_bands(stage, {}, sample_job, latents, job.planned.traced);
  const DecodingMemory memory(job, latents, result);
  const int64_t weights = sample_job.counted.meters.memory->peak(tensor::MemoryClass::weights);
  std::vector<int64_t> rank_bytes;  // besides the weights
  for (const Report::Rank& rank : result.shared.per_rank)
    rank_bytes.push_back(rank.peak_bytes.total - weights);
  rank_bytes[0] = std::max(rank_bytes[0] + memory.others, memory.joining - latents.bytes());
  for (size_t r = 0; r < rank_bytes.size(); ++r) ranks.at(r).decode = weights + rank_bytes[r];
  rank_bytes[0] += latents.bytes();
  const int64_t activations = state.ranks().bytes_here(rank_bytes);
  return {weights, activations, weights + activations, 0, sample_job.counted.meters.all->entries()};
}

}  // namespace tessera::admission
