#include "pipeline/denoise.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

#include "base/fail.h"
#include "base/stop.h"
#include "base/stopwatch.h"
#include "comm/collectives.h"
#include "load/safetensors.h"
#include "ops/elementwise.h"
#include "pipeline/conditioning.h"
#include "pipeline/gather_reports.h"
#include "pipeline/launch.h"
#include "pipeline/noise.h"
#include "pipeline/preview.h"
#include "pipeline/redundancy.h"
#include "pipeline/tensor_view.h"

namespace tessera::pipeline {
namespace {

using tensor::DType;
using tensor::Tensor;

/// What the ranks of this process write; the report is theirs together.
struct Ranks {
  ModelState& state;
  const GenerateRequest& request;
  const RunControl& control;
  const Job& job;
  Trace& trace;
  Report& report;
  std::mutex mutex;
  base::Stopwatch clock;
  std::map<int, RankProgress> now{};  // of the ranks of this process

  Tensor run(comm::Communicator* world);
  void tell(int step, double seconds, const std::function<Tensor()>& latent);
  void note_now(const parallel::Setup& setup, const comm::Ledger::Entries& before, double begun);
  void note_steps(const std::vector<double>& marks, const Tensor& latent);
  void note_rank(const parallel::Setup& setup);
  void note_work(int rank, int64_t sent);
};

/// Latents and noise of a request, drawn in full and in order on every rank, then cut.
class Start {
 public:
  Start(const GenerateRequest& request, const Job& job, const parallel::Setup& setup)
      : job_(job),
        setup_(setup),
        noise_(request.noise, request.seeds.empty() ? std::vector{request.seed} : request.seeds) {
    const auto given = job.given.find("latents");
    const bool drawn = given == job.given.end();
    latents_ = drawn ? tokens(draw(), job.noise_form())
                     : tokens(ops::cast(given->second, DType::f32), job.form);
    const float scale = job.sampler->initial_scale();
    if (scale != 1) latents_ = ops::blend(latents_, scale, latents_, 0);
  }
  Tensor latents() const { return latents_; }
  Tensor noise(int step) {
    const auto given = job_.given.find("noise." + std::to_string(step));
    if (given == job_.given.end()) {
      for (int i = 1; i < job_.sampler->noise_draws(step); ++i) draw();
      return tokens(draw(), job_.noise_form());
    }
    require(given->second.shape() == job_.latent_shape(), ErrorCode::usage,
            "'{}': 'noise.{}' is {}; expected {}", job_.given_by, step, given->second.shape().str(),
            job_.latent_shape().str());
    return tokens(ops::cast(given->second, DType::f32), job_.form);
  }

 private:
  Tensor draw() {
    const bool meta = setup_.residence.device == tensor::Device::meta;
    return meta ? Tensor::empty(job_.noise_shape(), DType::f32, tensor::Device::meta)
                : noise_.draw(job_.noise_shape());
  }
  Tensor tokens(const Tensor& whole, nn::LatentForm form) const {
    return setup_.partition.cut(nn::tokens_of_latent(whole, job_.layout, form), setup_.rank);
  }
  const Job& job_;
  const parallel::Setup& setup_;
  Noise noise_;
  Tensor latents_;
};

// Says where the run is, and shows it to whom asks.
void Ranks::tell(int step, double seconds, const std::function<Tensor()>& latent) {
  if (!control.on_progress) return;
  const auto within = std::make_shared<std::atomic<bool>>(true);
  const auto show = [&, within] {
    require(*within, ErrorCode::usage, "a preview is asked for within the callback of its step");
    return preview(state, control.stop, job, latent());
  };
  const auto give = [&, within] {
    require(*within, ErrorCode::usage, "latents are asked for within the callback of their step");
    return data_of(nn::latent_of_tokens(latent(), job.layout, job.form));
  };
  const std::shared_ptr<void> end(nullptr, [&](void*) { *within = false; });
  const float timestep = step > 0 ? job.sampler->timestep(step - 1) : 0;
  Progress progress{Phase::denoise, step, job.sampler->steps(), seconds, show, give, timestep};
  {
    const std::lock_guard lock(mutex);
    for (const auto& [rank, did] : now) progress.ranks.push_back(did);
  }
  control.on_progress(progress);
}

// What a rank has done up to now, for who looks on; on its own thread.
void Ranks::note_now(const parallel::Setup& setup, const comm::Ledger::Entries& before,
                     double begun) {
  RankProgress did;
  did.rank = setup.rank;
  if (setup.world)
    for (const auto& [key, entry] : setup.world->ledger().since(before)) {
      did.wait_seconds += entry.wait_seconds;
      if (is_by_plan(key.first)) did.sent_bytes += entry.bytes;
    }
  did.compute_seconds = std::max(clock.seconds() - begun - did.wait_seconds, 0.0);
  for (const nn::MoeEvent& event : setup.expert_events()) {
    const auto age = static_cast<size_t>(event.lag);
    did.expert_ages.resize(std::max(did.expert_ages.size(), age + 1));
    ++did.expert_ages[age];
  }
  if (setup.cache) did.kv_ages = setup.cache->ages();
  const std::lock_guard lock(mutex);
  now[setup.rank] = std::move(did);
}

void Ranks::note_steps(const std::vector<double>& marks, const Tensor& latent) {
  const int steps = job.sampler->steps();
  tell(steps, marks.back(), [&] { return latent; });
  report.phase_seconds[Phase::denoise] = marks.back();
  for (size_t i = 1; i < marks.size(); ++i) report.step_seconds.push_back(marks[i] - marks[i - 1]);
  report.forwards = steps;
}

void Ranks::note_rank(const parallel::Setup& setup) {
  const std::lock_guard lock(mutex);
  const int steps = job.sampler->steps();
  auto& layers = report.layers;
  const Plan& plan = state.options.plan;
  const int others = plan.tensor * plan.pipefusion;  // ranks with the same tokens, or other layers
  const bool first = setup.partition.mesh().coordinate(setup.rank, "tensor") == 0;
  for (const nn::MoeEvent& event : first ? setup.expert_events() : std::vector<nn::MoeEvent>()) {
    if (layers.size() <= static_cast<size_t>(event.site))
      layers.resize(static_cast<size_t>(event.site) + 1);
    Report::Layer& layer = layers[static_cast<size_t>(event.site)];
    layer.block = event.site;
    if (event.step == 0) layer.tokens += event.tokens;
    layer.mean_experts +=
        double(event.distinct) * others / steps / plan.world() / plan.calls(event.step, steps);
    layer.oldest = std::max(layer.oldest, event.oldest);
    layer.ages.resize(
        static_cast<size_t>(std::max<int>(event.lag + 1, static_cast<int>(layer.ages.size()))));
    ++layer.ages[static_cast<size_t>(event.lag)];
    for (int64_t count : event.assignments) layer.assignments += event.sent ? count : 0;
    layer.assignments_changed += event.changed;
  }
  report.kept_row_bytes = std::max(report.kept_row_bytes, setup.peak_kept_bytes());
  const nn::MoeLog& log = setup.experts->log();
  report.incast = {std::max(report.incast.most, log.most_coming()),
                   std::max(report.incast.bound, log.coming_bound())};
  if (setup.cache) {
    const std::vector<int64_t>& ages = setup.cache->ages();
    report.kv_ages.resize(std::max(report.kv_ages.size(), ages.size()));
    for (size_t age = 0; age < ages.size(); ++age) report.kv_ages[age] += ages[age];
  }
  if (!setup.world) return;
  for (const auto& [key, entry] : setup.world->ledger().since(job.sent_before)) {
    Report::Traffic& traffic = report.traffic[key];
    traffic.messages += entry.messages;
    traffic.bytes += entry.bytes;
    traffic.wait_seconds += entry.wait_seconds;
    traffic.flight_seconds += entry.flight_seconds;
  }
}

void Ranks::note_work(int rank, int64_t sent) {
  const std::lock_guard lock(mutex);
  const size_t place = state.workers.ranks.empty() ? 0 : static_cast<size_t>(rank);
  if (report.per_rank.size() <= place) report.per_rank.resize(place + 1);
  report.per_rank[place] = work_of(state.workers.scope(rank, &job.meters), sent);
}

int64_t sent_by(comm::Communicator* world) {
  int64_t bytes = 0;
  if (!world) return bytes;
  for (const auto& [key, entry] : world->ledger().entries())
    if (is_by_plan(key.first)) bytes += entry.bytes;
  return bytes;
}

Tensor Ranks::run(comm::Communicator* world) {
  const int rank = world ? world->rank() : 0;
  const int64_t sent_before = sent_by(world);
  const Plan& plan = state.options.plan;
  const nn::Denoiser& model = *job.networks.at(static_cast<size_t>(rank));
  parallel::Setup setup(plan, model.geometry(), job.workload(), world,
                        {state.device(), job.resident_blocks < 0 && plan.shard == 1});
  RedundancyProbe probe;
  if (request.compare_steps)
    setup.experts->log().watch([&](const nn::MoeWork& work) { probe.see(work); });
  Start start(request, job, setup);
  std::vector<double> marks;
  parallel::DenoiseControl watch;
  const auto before = world ? world->ledger().entries() : comm::Ledger::Entries();
  const double begun = clock.seconds();
  const auto note = [&] { note_now(setup, before, begun); };
  if (control.on_progress) watch.on_rank_step = [&](int) { note(); };
  if (rank == 0 || state.options.processes) watch.stop = control.stop;
  if (rank == 0) {
    watch.on_step = [&](int step, int, const std::function<Tensor()>& latent) {
      marks.push_back(clock.seconds());
      tell(step, marks.back(), latent);
    };
  }
  if (trace.wanted())
    watch.trace = [&](const std::string& name, const Tensor& x) {
      const Tensor whole = gathered(setup, x);
      if (rank == 0) trace.tokens(name, whole);
    };
  const Tensor mine = parallel::denoise(
      model, take_sequences(job.conditioning, setup.partition.sequences(rank)), *job.sampler,
      job.guidance, start.latents(), [&](int step) { return start.noise(step); }, setup, watch);
  const int64_t sent = sent_by(world) - sent_before;
  if (control.on_progress) note();
  const Tensor all = gathered(setup, mine);
  if (rank == 0) {
    marks.push_back(clock.seconds());
    note_steps(marks, all);
  }
  note_rank(setup);
  note_work(rank, sent);
  if (request.compare_steps) {
    report.similarity = probe.steps();
    report.stale_errors = probe.stale_errors();
  }
  return all;
}

}  // namespace

bool is_by_plan(const std::string& operation) {
  return operation != "go" && operation != "gather" && operation != "heap";
}

MemoryPeaks peaks_of(const tensor::MemoryTracker& memory) {
  using tensor::MemoryClass;
  return {memory.peak(MemoryClass::weights), memory.peak(MemoryClass::activations),
          memory.peak(MemoryClass::kv), memory.peak(MemoryClass::buffers), memory.peak()};
}

Report::Rank work_of(const tensor::Scope& rank, int64_t sent) {
  return {peaks_of(*rank.memory), rank.meter->total().flops, sent};
}

void Trace::tokens(const std::string& name, const Tensor& x) {
  nn::TokenLayout layout = layout_;
  layout.channels = x.size(1) / (layout.token_channels() / layout.channels);
  tensors_[name] = nn::latent_of_tokens(x, layout, form_);
}

int64_t Trace::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, x] : tensors_) sum += x.bytes();
  return sum;
}

void Trace::write(const std::string& path) const {
  if (wanted_) load::write_safetensors(path, tensors_);
}

void load_ranks(ModelState& state, Job& job) {
  const Processes* const processes = state.options.processes;
  const Plan& plan = state.options.plan;
  job.networks.resize(static_cast<size_t>(plan.world()));
  for (int r = 0; r < plan.world(); ++r) {
    base::check_stop();
    if (!processes || processes->rank() == r)
      job.networks[static_cast<size_t>(r)] = state.transformer(r, job.resident_blocks, &job.meters);
  }
}

Tensor denoise(ModelState& state, const GenerateRequest& request, const RunControl& control,
               const Job& job, Trace& trace, Report& report) {
  Ranks ranks{state, request, control, job, trace, report, {}};
  Tensor latent;
  launch_ranks(state, job.meters, control.stop, [&](comm::Communicator* world) {
    const Tensor all = ranks.run(world);
    if (!world || world->rank() == 0) latent = all;
    if (world && state.options.processes) gather_reports(*world, report);
  });
  return latent;
}

}  // namespace tessera::pipeline
