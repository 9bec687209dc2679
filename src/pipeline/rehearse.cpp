#include "pipeline/rehearse.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "pipeline/denoise.h"
#include "pipeline/streamed.h"

namespace tessera::pipeline {
namespace {

using tensor::Tensor;

constexpr int64_t kRemembered = 4;  // steps, of what samplers collect and results of experts wait

/// The first steps of a sampler.
class FirstSteps final : public sample::Sampler {
 public:
  FirstSteps(const sample::Sampler& all, int steps) : all_(all), steps_(steps) {}
  int steps() const override { return steps_; }
  float timestep(int i) const override { return all_.timestep(i); }
  bool needs_noise(int i) const override { return all_.needs_noise(i); }
  int noise_draws(int i) const override { return all_.noise_draws(i); }
  float initial_scale() const override { return all_.initial_scale(); }
  bool whole_samples() const override { return all_.whole_samples(); }
  float input_scale(int i) const override { return all_.input_scale(i); }
  Tensor step(int i, const Tensor& prediction, const Tensor& x, const Tensor& noise,
              sample::History& history) const override {
    return all_.step(i, prediction, x, noise, history);
  }

 private:
  const sample::Sampler& all_;
  int steps_;
};

// Plans count their periods from the last step.
int steps_until_they_repeat(const Plan& plan, int steps) {
  const int64_t period =
      std::lcm(int64_t{std::max(plan.stride, 1)}, int64_t{std::max(plan.sync_every, 1)});
  const int64_t least = kRemembered + (plan.stale() ? plan.warmup + period : 0);
  return static_cast<int>(steps <= least ? steps : least + (steps - least) % period);
}

Job shortened(const Job& job, const Plan& plan) {
  Job first;
  first.layout = job.layout;
  first.form = job.form;
  first.labels = job.labels;
  first.prefix = job.prefix;
  first.guidance = job.guidance;
  first.resident_blocks = job.resident_blocks;
  first.sampler = std::make_unique<FirstSteps>(*job.sampler,
                                               steps_until_they_repeat(plan, job.sampler->steps()));
  for (const auto& [name, x] : job.conditioning.tensors) {
    const bool says_lengths = name.find("mask") != std::string::npos;  // so it keeps its elements
    first.conditioning.tensors[name] = says_lengths ? x : x.to(tensor::Device::meta);
  }
  for (const auto& [name, x] : job.given) first.given[name] = x.to(tensor::Device::meta);
  return first;
}

std::vector<Inspection::Rank> ranks_of(const Report& report, const Plan& plan,
                                       const nn::Geometry& geometry, const Job& run) {
  const int steps = run.sampler->steps();
  const parallel::Partition partition(plan, run.workload());
  std::vector<Inspection::Rank> ranks;
  for (const Report::Rank& did : report.per_rank) {
    const auto r = static_cast<int>(ranks.size());
    const MemoryPeaks& peak = did.peak_bytes;
    ranks.push_back({.experts = experts_of(plan, geometry, r),
                     .tokens = nn::token_count(partition.view(r).body),
                     .weights = peak.weights,
                     .activations = peak.activations,
                     .kv = peak.kv,
                     .buffers = peak.buffers,
                     .total = peak.total,
                     .flops = did.flops / steps,
                     .sent = did.sent_bytes / steps});
  }
  return ranks;
}

// Of ranks that are threads, which share the slices that several of them hold.
int64_t shared_weights(const ModelState& stage) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  const auto weights = stage.transformer_weights();
  std::vector<std::unique_ptr<nn::Denoiser>> networks;
  for (int r = 0; r < stage.options.plan.world(); ++r)
    networks.push_back(stage.spec->make(*weights, stage.portion(r), stage.dtype()));
  return scope.memory->current(tensor::MemoryClass::weights);
}

// What a request holds beside its ranks: the conditioning of all sequences, and what it was given.
int64_t input_bytes(const Job& job) {
  int64_t bytes = 0;
  for (const auto* tensors : {&job.conditioning.tensors, &job.given})
    for (const auto& [name, x] : *tensors) bytes += x.bytes();
  return bytes;
}

}  // namespace

void set_stage(const ModelState& state, ModelState& stage) {
  stage.options = state.options;
  stage.options.processes = nullptr;
  stage.place.device = tensor::Device::meta;
  stage.folder = state.folder;
  stage.spec = state.spec;
  stage.workers.assumptions = tensor::current_scope().assumptions;
  const auto world = static_cast<size_t>(state.options.plan.world());
  stage.workers.ranks.resize(world > 1 ? world : 0);
}

int experts_of(const Plan& plan, const nn::Geometry& geometry, int rank) {
  if (geometry.experts.empty()) return 0;
  const std::vector<int> owners = parallel::expert_owners(plan, geometry.experts.front().experts);
  return static_cast<int>(
      std::count(owners.begin(), owners.end(), parallel::expert_place(plan, rank)));
}

int64_t process_bytes(const std::vector<Inspection::Rank>& ranks, const RunOptions& options,
                      const std::function<int64_t()>& shared_weights) {
  int64_t most = 0, sum = 0;
  for (const Inspection::Rank& rank : ranks) {
    most = std::max(most, rank.total);
    sum += rank.total - rank.weights;
  }
  return options.processes || ranks.size() == 1 ? most : sum + shared_weights();
}

Rehearsal rehearse(const ModelState& state, const Job& job) {
  ModelState stage;
  set_stage(state, stage);
  const tensor::BindScope bind(stage.workers.scope());
  Job run = shortened(job, stage.options.plan);
  run.meters = RunMeters(stage.workers.ranks.size());
  const nn::Geometry geometry = stage.geometry();
  parallel::require_runnable(stage.options.plan, geometry, run.workload());
  load_ranks(stage, run);
  Trace none(run, false);
  Report report;
  denoise(stage, {}, {}, run, none, report);
  Rehearsal found{ranks_of(report, stage.options.plan, geometry, run)};
  found.process = input_bytes(job) +
                  process_bytes(found.ranks, state.options, [&] { return shared_weights(stage); });
  return found;
}

}  // namespace tessera::pipeline
