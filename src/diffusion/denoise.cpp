#include "diffusion/denoise.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>

#include "base/fail.h"
#include "base/stop.h"
#include "cluster/gather_reports.h"
#include "cluster/rank_progress_channel.h"
#include "comm/collectives.h"
#include "diffusion/conditioning.h"
#include "diffusion/parts.h"
#include "diffusion/preview.h"
#include "diffusion/redundancy.h"
#include "diffusion/start.h"
#include "load/safetensors.h"
#include "ops/elementwise.h"
#include "runtime/former_output.h"
#include "runtime/launch.h"
#include "runtime/loading_denoiser.h"
#include "runtime/tensor_view.h"
#include "tensor/launches.h"
#include "tensor/run_watcher.h"

namespace tessera::diffusion {
namespace {

using tensor::Tensor;

bool is_data(TrafficKind kind) { return kind == TrafficKind::plan || kind == TrafficKind::decode; }

int64_t sent_by(const comm::Communicator* world) {
  int64_t bytes = 0;
  if (!world) return bytes;
  for (const auto& [key, entry] : world->ledger().entries())
    if (is_data(entry.kind)) bytes += entry.bytes;
  return bytes;
}

double loading_seconds(const Job& job) {
  double sum = 0;
  for (const auto& network : job.loaded.networks)
    if (const auto* loading = dynamic_cast<const runtime::LoadingDenoiser*>(network.get()))
      sum += loading->loading_seconds();
  return sum;
}

}  // namespace

Denoising::Denoising(runtime::ModelState& state, const GenerateRequest& request,
                     const RunControl& control, const Job& job, Trace& trace, Report& report)
    : state_(state),
      request_(request),
      control_(control),
      job_(job),
      trace_(trace),
      report_(report),
      parts_(parts_of(state.options.plan, job.samples())) {}

// Reports the progress of the run, and offers a preview of the latent.
void Denoising::tell(const Job& part, int step, double seconds,
                     const std::function<Tensor()>& latent) {
  if (!control_.on_progress) return;
  const auto within = std::make_shared<std::atomic<bool>>(true);
  const auto show = [&, within] {
    require(*within, ErrorCode::usage, "a preview is asked for within the callback of its step");
    return preview(state_, control_.stop, part, latent());
  };
  const auto give = [&, within] {
    require(*within, ErrorCode::usage, "latents are asked for within the callback of their step");
    return runtime::data_of(nn::latent_of_tokens(latent(), part.planned.layout, part.planned.form));
  };
  const std::shared_ptr<void> end(nullptr, [&](void*) { *within = false; });
  const float timestep = step > 0 ? part.planned.sampler->timestep(step - 1) : 0;
  const int steps = part.planned.sampler->steps();
  const auto before = std::count_if(parts_.begin(), parts_.end(), [&](const nn::Range& samples) {
    return samples.begin < part.planned.first_sample;
  });
  if (before > 0 && step == 0) return;  // the last step of the previous part reported the same
  Progress progress{Phase::denoise,
                    static_cast<int>(before) * steps + step,
                    static_cast<int>(parts_.size()) * steps,
                    seconds,
                    show,
                    give,
                    timestep};
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [rank, rank_progress] : now_) progress.ranks.push_back(rank_progress);
  }
  control_.on_progress(progress);
}

// Publishes the work of a rank so far; runs on the rank's own thread.
void Denoising::note_now(const parallel::Setup& setup, const Begin& since) {
  RankProgress rank_progress;
  rank_progress.rank = setup.rank;
  if (setup.world)
    for (const auto& [key, entry] : setup.world->ledger().since(since.sent_before)) {
      rank_progress.wait_seconds += entry.wait_seconds;
      if (is_data(entry.kind)) rank_progress.sent_bytes += entry.bytes;
    }
  rank_progress.compute_seconds =
      std::max(seconds() - since.seconds - rank_progress.wait_seconds, 0.0);
  for (const nn::MoeEvent& event : setup.expert_events()) {
    const auto age = static_cast<size_t>(event.lag);
    rank_progress.expert_ages.resize(std::max(rank_progress.expert_ages.size(), age + 1));
    ++rank_progress.expert_ages[age];
  }
  if (setup.cache) rank_progress.kv_ages = setup.cache->ages();
  const std::lock_guard lock(mutex_);
  now_[setup.rank] = std::move(rank_progress);
}

void Denoising::note_steps(const Job& part, const std::vector<double>& marks,
                           const Tensor& latent) {
  const int steps = part.planned.sampler->steps();
  tell(part, steps, marks.back(), [&] { return latent; });
  report_.phase_seconds[Phase::denoise] = marks.back();
  for (size_t i = 1; i < marks.size(); ++i) report_.step_seconds.push_back(marks[i] - marks[i - 1]);
  report_.forwards += steps;
}

void Denoising::note_rank(const parallel::Setup& setup) {
  const std::lock_guard lock(mutex_);
  const int steps = job_.planned.sampler->steps();
  auto& layers = report_.layers;
  const Plan& plan = state_.options.plan;
  const int others = plan.tensor * plan.pipefusion;  // ranks with the same tokens, or other layers
  const int passes = setup.branches_in_turn ? 2 : 1;
  const double calls = double(steps) * plan.world() * double(parts_.size()) * passes;
  const bool first = setup.partition.mesh().coordinate(setup.rank, "tensor") == 0;
  for (const nn::MoeEvent& event : first ? setup.expert_events() : std::vector<nn::MoeEvent>()) {
    if (layers.size() <= static_cast<size_t>(event.site))
      layers.resize(static_cast<size_t>(event.site) + 1);
    Report::Layer& layer = layers[static_cast<size_t>(event.site)];
    layer.block = event.site;
    if (event.step == 0) layer.tokens += event.tokens;
    layer.mean_experts += double(event.distinct) * others / calls / plan.calls(event.step, steps);
    layer.oldest = std::max(layer.oldest, event.oldest);
    layer.ages.resize(
        static_cast<size_t>(std::max<int>(event.lag + 1, static_cast<int>(layer.ages.size()))));
    ++layer.ages[static_cast<size_t>(event.lag)];
    for (int64_t count : event.assignments) layer.assignments += event.sent ? count : 0;
    layer.assignments_changed += event.changed;
  }
  report_.kept_row_bytes = std::max(report_.kept_row_bytes, setup.peak_kept_bytes());
  const nn::MoeLog& log = setup.experts->log();
  report_.incast = {std::max(report_.incast.most, log.most_coming()),
                    std::max(report_.incast.bound, log.coming_bound())};
  for (const auto& load : setup.expert_loads()) cluster::add_counts(load, report_.expert_load);
  note_reuse(setup);
  if (setup.cache) cluster::add_counts(setup.cache->ages(), report_.kv_ages);
}

// Reuse decisions are the same on all ranks of a branch, so the first of these reports them.
void Denoising::note_reuse(const parallel::Setup& setup) {
  if (setup.reuse.empty()) return;
  if (!report_.reused) report_.reused.emplace().rule = to_string(*setup.step_cache);
  Report::Reused& total = *report_.reused;
  for (const auto& reuse : setup.reuse) total.flops_saved += reuse->log().flops_saved;
  if ((setup.same_branch ? setup.same_branch->rank() : setup.rank) != 0) return;
  const auto append = [](auto& to, const auto& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (size_t i = 0; i < setup.reuse.size(); ++i) {
    const parallel::StepReuse::Log& log = setup.reuse[i]->log();
    const bool negative = i > 0 || (setup.same_branch && setup.branch_group->rank() > 0);
    append(negative ? total.negative_computed_blocks : total.computed_blocks, log.computed);
    append(negative ? total.negative_changes : total.changes, log.changes);
    total.blocks_computed += log.blocks_computed;
    total.blocks_reused += log.blocks_reused;
  }
}

// The first step's loading counts as loading. Requests at once share it.
double Denoising::loaded() const { return loading_seconds(job_) - loaded_before_; }
double Denoising::seconds() const { return std::max(clock_.seconds() - loaded(), 0.0); }

Denoising::Begin& Denoising::begin(int rank, const comm::Communicator* ranks) {
  const std::lock_guard lock(mutex_);
  if (begins_.empty()) {  // other ranks of the sequence may have run before
    clock_ = {};
    loaded_before_ = loading_seconds(job_);
  }
  const auto [at, first] = begins_.try_emplace(rank);
  if (first && ranks) at->second.sent_before = ranks->ledger().entries();
  if (first) at->second.seconds = seconds();
  return at->second;
}

// Sends this rank's numbers; the first rank receives as many from each other rank.
void Denoising::note_others(cluster::RankProgressChannel& channel, int rank, int words) {
  if (rank > 0) return channel.tell(now_.at(rank));
  for (int i = 0; i < words; ++i)
    for (RankProgress& rank_progress : channel.hear())
      now_[rank_progress.rank] = std::move(rank_progress);
}

// Both halves of a staggered batch.
void Denoising::trace_experts(const parallel::Setup& setup, const Job& part) {
  std::vector<int> numbers = setup.partition.sequences(setup.rank);
  for (int& number : numbers) number = part.workload().number(number);
  for (nn::MoeLayers* const layers : {setup.experts.get(), setup.second.get()})
    if (layers)
      layers->log().watch([this, numbers](const nn::MoeWork& work) {
        const std::lock_guard lock(mutex_);
        trace_.routing(work, numbers);
      });
}

parallel::DenoiseControl Denoising::watch(const parallel::Setup& setup, const Job& part,
                                          std::vector<double>& marks) {
  parallel::DenoiseControl watch;
  if (state_.ranks().speaks(setup.rank)) watch.stop = control_.stop;
  if (setup.rank == 0) {
    watch.on_step = [&](int step, int, const std::function<Tensor()>& latent) {
      marks.push_back(marks.empty() ? seconds() : std::max(marks.back(), seconds()));
      tell(part, step, marks.back(), latent);
    };
  }
  if (trace_.wanted())
    watch.trace = [&](const std::string& name, const Tensor& x) {
      const Tensor whole = gathered(setup, x);
      if (setup.rank == 0) trace_.tokens(name, whole);
    };
  return watch;
}

Tensor Denoising::run(comm::Communicator* ranks, const Job& part, const comm::Communicator* world) {
  const int rank = ranks ? ranks->rank() : 0;
  tensor::watch_part("prepare");
  Begin& since = begin(rank, ranks);
  const int64_t sent_before = sent_by(ranks);
  const Plan& plan = state_.options.plan;
  const nn::Denoiser& model = *job_.loaded.networks.at(static_cast<size_t>(rank));
  parallel::Setup setup(plan, model.geometry(), part.workload(), ranks,
                        {.device = state_.device(),
                         .fixed = job_.admitted.resident_blocks < 0 && plan.shard == 1,
                         .for_gpu = state_.options.device.kind != DeviceKind::cpu});
  RedundancyProbe probe;
  if (request_.compare_steps)
    setup.experts->log().watch([&](const nn::MoeWork& work) { probe.see(work); });
  if (trace_.wanted()) trace_experts(setup, part);
  Start start(request_, part, setup);
  std::vector<double> marks;
  parallel::DenoiseControl watched = watch(setup, part, marks);
  std::optional<cluster::RankProgressChannel> channel;
  if (ranks && !state_.ranks().all_here()) channel.emplace(*ranks, control_.on_progress != nullptr);
  const bool looks = channel ? channel->wanted() : control_.on_progress != nullptr;
  // Other processes report a step late, so that rank 0 never waits for them.
  const auto note = [&](int words) {
    if (looks) note_now(setup, since);
    if (looks && channel) note_others(*channel, rank, words);
  };
  watched.on_rank_step = [&](int step) {
    tensor::watch_part("step", step);
    if (const auto* const communicator = world ? world : ranks) communicator->check();
    note(step > 0 ? 1 : 0);
  };
  const Tensor own_latent = parallel::denoise(
      model, take_sequences(part.asked.conditioning, setup.partition.sequences(rank)),
      *part.planned.sampler, part.planned.guidance, start.latents(),
      [&](int step) { return start.noise(step); }, setup, watched, start.kept_latent());
  since.bytes += sent_by(ranks) - sent_before;
  note(2);  // the last step, and the end
  tensor::watch_part("gather");
  const Tensor whole_latent = gathered(setup, own_latent);
  tensor::watch_part("");
  if (rank == 0) {
    marks.push_back(marks.empty() ? seconds() : std::max(marks.back(), seconds()));
    note_steps(part, marks, whole_latent);
  }
  note_rank(setup);
  if (request_.compare_steps) {
    report_.similarity = probe.steps();
    report_.stale_errors = probe.stale_errors();
  }
  return whole_latent;
}

void Denoising::end(int rank, const comm::Communicator* world, const comm::Ledger::Entries& before,
                    int64_t weights) {
  const std::lock_guard lock(mutex_);
  if (world)
    for (const auto& [key, entry] : world->ledger().since(before)) {
      Report::Traffic& traffic = report_.traffic[key];
      traffic.messages += entry.messages;
      traffic.bytes += entry.bytes;
      traffic.wait_seconds += entry.wait_seconds;
      traffic.flight_seconds += entry.flight_seconds;
      traffic.kind = entry.kind;
    }
  const size_t place = state_.workers.ranks.empty() ? 0 : static_cast<size_t>(rank);
  if (report_.per_rank.size() <= place) report_.per_rank.resize(place + 1);
  Report::Rank& rank_report = report_.per_rank[place];
  const tensor::Scope scope = state_.workers.scope(rank, &job_.counted.meters);
  rank_report = runtime::work_of(scope, begins_[rank].bytes);
  rank_report.peak_bytes.weights += weights;
  rank_report.peak_bytes.total += weights;
  const Report& encoded = job_.counted.encoded;
  if (place < encoded.per_rank.size()) {
    rank_report.text_peak_bytes = encoded.per_rank[place].peak_bytes;
    rank_report.text_flops = encoded.per_rank[place].flops;
  }
  Report encoding_report;
  encoding_report.launches = tensor::launches_of(scope.meter->entries());
  if (rank == 0) encoding_report.traffic = encoded.traffic;
  cluster::add_report(encoding_report, report_);
}

Trace::Trace(const Job& job, bool wanted)
    : layout_(job.planned.layout), form_(job.planned.form), wanted_(wanted) {
  const parallel::Workload whole = job.workload();
  if (wanted) routing_ = {whole.steps, int64_t{whole.branches} * whole.samples, whole.tokens()};
}

void Trace::routing(const nn::MoeWork& work, const std::vector<int>& numbers) {
  routing_.note(work.call, numbers, work.routing.ids);
}

void Trace::tokens(const std::string& name, const Tensor& x) {
  nn::TokenLayout layout = layout_;
  layout.channels = x.size(1) / (layout.token_channels() / layout.channels);
  const Tensor latents = nn::latent_of_tokens(x, layout, form_);
  const auto before = tensors_.find(name);
  tensors_[name] = before == tensors_.end() ? latents : ops::concat_rows({before->second, latents});
}

int64_t Trace::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, x] : tensors_) sum += x.bytes();
  return sum;
}

void Trace::write(const std::string& path) const {
  if (!wanted_) return;
  std::map<std::string, Tensor> tensors = tensors_;
  if (routing_.complete()) tensors.insert(routing_.tensors().begin(), routing_.tensors().end());
  load::write_safetensors(path, tensors, runtime::tensors_metadata(FileKind::trace));
}

void load_ranks(runtime::ModelState& state, Job& job) {
  const int world = state.options.plan.world();
  job.loaded.networks.resize(static_cast<size_t>(world));
  for (const int r : state.ranks().mine(world)) {
    base::check_stop();
    job.loaded.networks[static_cast<size_t>(r)] = state.transformer(
        r, job.admitted.resident_blocks, &job.counted.meters, job.asked.adapters.get());
  }
}

Tensor denoise(runtime::ModelState& state, const GenerateRequest& request,
               const RunControl& control, const Job& job, Trace& trace, Report& report) {
  Denoising denoising(state, request, control, job, trace, report);
  Tensor latent;
  runtime::launch_ranks(state, job.counted.meters, control.stop, [&](comm::Communicator* world) {
    const Tensor whole_latent = denoising.run(world, job);
    denoising.end(world ? world->rank() : 0, world, job.counted.sent_before);
    if (!world || world->rank() == 0) latent = whole_latent;
    state.ranks().gather(world, report);
  });
  if (denoising.loaded() > 0) report.phase_seconds[Phase::load] += denoising.loaded();
  return latent;
}

}  // namespace tessera::diffusion
