#include "planner/search.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "admission/memory_plan.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/stop.h"
#include "diffusion/plan_job.h"
#include "models/published_models.h"
#include "planner/candidates.h"
#include "planner/cost.h"
#include "planner/timeline.h"
#include "runtime/published.h"
#include "tensor/scope.h"

namespace tessera {
namespace planner {
namespace {

constexpr double kUsable = 0.96;  // share of a device's memory; drivers and contexts take the rest
constexpr int kMostRanksPredicted = 512;

tensor::DType computed_in(const runtime::ModelState& state) { return state.dtype(); }

}  // namespace

void open_subject(const std::string& model, const RunOptions& options, runtime::ModelState& state) {
  std::error_code ignored;
  const bool by_name =
      models::published_model(model) != nullptr && !std::filesystem::exists(model, ignored);
  by_name ? runtime::open_published(model, options, state)
          : runtime::open_model(model, options, state);
  require(
      state.spec.has_value(), ErrorCode::usage,
      "'{}' makes no images; plans of language models are not predicted yet; an inspection with "
      "`plan` says what they hold",
      model);
}

Subject::Subject(const std::string& model, const RunOptions& options,
                 const GenerateRequest& request)
    : state_(std::make_unique<runtime::ModelState>()) {
  RunOptions alone = options;
  alone.plan = {};
  alone.processes = nullptr;
  alone.threads = std::max(options.threads, 1);
  open_subject(model, alone, *state_);
  job_ = std::make_unique<diffusion::Job>(diffusion::sketch_job(*state_, request));
}

int Subject::blocks() const { return static_cast<int>(state_->spec->blocks); }

int Subject::experts() const {
  int most = 0;
  for (const auto& layer : state_->geometry().experts) most = std::max(most, layer.experts);
  return most;
}

int64_t Subject::heads() const {
  const nn::Geometry geometry = state_->geometry();
  return geometry.attention.empty() ? 1 : geometry.attention.front().heads;
}

const Foretold& Subject::of(const Plan& plan) {
  const auto [at, first] = plans_.try_emplace(to_string(plan));
  if (!first) return at->second;
  try {
    at->second = foretell(*state_, *job_, plan);
  } catch (...) {
    plans_.erase(at);
    throw;
  }
  return at->second;
}

const Foretold& Subject::decoding(int ranks, double room) {
  const auto [at, first] = decodings_.try_emplace({ranks, room});
  if (!first) return at->second;
  try {
    at->second = foretell_decode(*state_, *job_, ranks, room);
  } catch (...) {
    decodings_.erase(at);
    throw;
  }
  return at->second;
}

double Subject::text_seconds(const Cluster& cluster) const {
  double seconds = 0;
  for (const diffusion::Text& text : job_->texts)
    seconds += seconds_of(text.need.work, computed_in(*state_), cluster.device, cluster.software);
  return seconds;
}

double room_of(const Cluster& cluster) { return cluster.device.memory_bytes * kUsable; }

namespace {

void require_room(const std::string& what, double bytes, const Cluster& cluster) {
  require(bytes <= room_of(cluster), ErrorCode::memory, "{} takes {} of a rank; {} has room for {}",
          what, admission::amount(bytes), cluster.device.name, admission::amount(room_of(cluster)));
}

// Seconds of decoding with the fastest number of ranks.
double decoding_seconds(Subject& subject, const Cluster& cluster, Plan& plan, int64_t& bytes) {
  if (subject.job().decoded_lines == 0 || !subject.has_vae()) return 0;
  double best = -1;
  std::string problem;
  for (int ranks = 1; ranks <= plan.world(); ranks *= 2) {
    try {
      const Foretold& one = subject.decoding(ranks, room_of(cluster));
      require_room(fmt::format("decoding by vae={}", ranks), double(one.rank_bytes), cluster);
      const double seconds = simulate(one.recording, cluster).seconds;
      if (best >= 0 && seconds >= best) continue;
      best = seconds;
      plan.vae = ranks;
      bytes = one.rank_bytes;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::plan && error.code() != ErrorCode::memory) throw;
      problem = error.what();
    }
  }
  require(best >= 0, ErrorCode::memory, "{}", problem);
  const int samples = subject.job().samples();
  return best * samples;
}

}  // namespace

PredictedPlan predicted(Subject& subject, const Cluster& cluster, const Plan& plan) {
  const Foretold& foretold = subject.of(plan);
  require_room("denoising", double(foretold.rank_bytes), cluster);
  const Simulation run = simulate(foretold.recording, cluster);
  PredictedPlan made;
  Plan whole = plan;
  int64_t decoding_bytes = 0;
  made.decoding = decoding_seconds(subject, cluster, whole, decoding_bytes);
  made.plan = to_string(whole);
  made.text = subject.text_seconds(cluster);
  made.denoising = run.seconds;
  made.samples_per_second = subject.job().samples() / made.seconds();
  made.waiting = run.waiting_share();
  made.rank_bytes = std::max(foretold.rank_bytes, decoding_bytes);
  made.sent_bytes = foretold.recording.sent_bytes();
  made.messages = foretold.recording.sent_messages();
  made.flops = foretold.flops;
  made.link_bytes = run.link_bytes;
  return made;
}

void rank(std::vector<PredictedPlan>& plans, PlanGoal goal) {
  const auto key = [&](const PredictedPlan& p) -> std::pair<double, double> {
    if (goal == PlanGoal::memory) return {double(p.rank_bytes), p.seconds()};
    if (goal == PlanGoal::throughput) return {-p.samples_per_second, p.seconds()};
    return {p.seconds(), double(p.rank_bytes)};
  };
  std::stable_sort(plans.begin(), plans.end(),
                   [&](const PredictedPlan& a, const PredictedPlan& b) { return key(a) < key(b); });
}

namespace {

Cluster cluster_for(const PredictionRequest& request) {
  require(request.ranks >= 1 && request.ranks <= kMostRanksPredicted, ErrorCode::usage,
          "`ranks` {}: expected 1 to {}", request.ranks, kMostRanksPredicted);
  require(!request.hardware.empty(), ErrorCode::usage,
          "`hardware` is missing: a file, here, or one of {}", fmt::join(known_clusters(), ", "));
  Cluster cluster =
      request.hardware == "here"
          ? cluster_of(base::parse_json(calibrate(request.ranks, 0, base::current_stop()), "here"),
                       "here")
          : open_cluster(request.hardware, request.ranks);
  change(cluster, request.changes);
  return cluster;
}

tensor::Scope scope_of(const PredictionRequest& request, const Subject* subject) {
  tensor::Scope scope = tensor::current_scope();
  scope.assumptions.expert_load = request.expert_load;
  const size_t given = request.expert_load.size();
  if (subject && given > 0)
    require(static_cast<int>(given) == subject->experts(), ErrorCode::usage,
            "`expert_load` holds {} numbers; the model's layers have {} experts", given,
            subject->experts());
  for (const double share : request.expert_load)
    require(share >= 0 && share <= 1e12, ErrorCode::usage,
            "`expert_load` holds {}; expected numbers of at least 0", share);
  return scope;
}

std::vector<Plan> plans_of(const Subject& subject, const PredictionRequest& request) {
  if (!request.plans.empty()) return request.plans;
  const diffusion::Job& job = subject.job();
  return candidates({request.ranks, job.samples(), job.guidance.branches(), request.stale,
                     subject.experts(), subject.blocks()});
}

/// Plans of a list, taken by threads in turn, with the results.
struct Search {
  const PredictionRequest& request;
  const Cluster& cluster;
  const std::vector<Plan>& plans;
  std::vector<std::optional<PredictedPlan>> found{};
  std::vector<std::string> refused{};
  std::atomic<size_t> next{0};
  std::mutex mutex{};
  std::exception_ptr failure{};

  void work(Subject& subject, const std::function<void(int, int)>& progress,
            const std::stop_token& stop) {
    try {
      const base::BindStop bind(stop);
      const tensor::BindScope assumed(scope_of(request, nullptr));
      for (size_t i = next++; i < plans.size(); i = next++) {
        base::check_stop();
        one(subject, i);
        const std::lock_guard lock(mutex);
        if (progress) progress(static_cast<int>(i) + 1, static_cast<int>(plans.size()));
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = plans.size();
    }
  }
  void one(Subject& subject, size_t i) {
    try {
      found[i] = predicted(subject, cluster, plans[i]);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::plan && error.code() != ErrorCode::memory) throw;
      refused[i] = error.what();
    }
    subject.forget();
  }
};

Prediction searched(const std::string& model, const RunOptions& options,
                    const PredictionRequest& request, const Cluster& cluster,
                    const std::function<void(int, int)>& progress, const std::stop_token& stop) {
  const tensor::BindScope assumed(scope_of(request, nullptr));
  Subject first(model, options, request.generate);
  scope_of(request, &first);
  const std::vector<Plan> plans = plans_of(first, request);
  Search search{request, cluster, plans};
  search.found.resize(plans.size());
  search.refused.resize(plans.size());
  const int threads =
      options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads && t < static_cast<int>(plans.size()); ++t)
      others.emplace_back([&] {
        std::optional<Subject> mine;
        const tensor::BindScope here(scope_of(request, nullptr));
        try {
          mine.emplace(model, options, request.generate);
        } catch (...) {
          return;  // the first thread reports the error
        }
        search.work(*mine, progress, stop);
      });
    search.work(first, progress, stop);
  }
  if (search.failure) std::rethrow_exception(search.failure);
  Prediction made{model, cluster.name, request.ranks, {}, {}};
  for (size_t i = 0; i < plans.size(); ++i) {
    if (search.found[i])
      made.plans.push_back(std::move(*search.found[i]));
    else
      made.refused.push_back({to_string(plans[i]), search.refused[i]});
  }
  rank(made.plans, request.goal);
  return made;
}

}  // namespace
}  // namespace planner

Prediction predict_plans(const std::string& model, const RunOptions& options,
                         const PredictionRequest& request,
                         const std::function<void(int, int)>& progress,
                         const std::stop_token& stop) {
  const base::BindStop bind(stop);
  return planner::searched(model, options, request, planner::cluster_for(request), progress, stop);
}

PredictedPlan choose_plan(const std::string& model, const RunOptions& options,
                          const PredictionRequest& request, const std::stop_token& stop) {
  Prediction all = predict_plans(model, options, request, {}, stop);
  if (!all.plans.empty()) return std::move(all.plans.front());
  require(!all.refused.empty(), ErrorCode::plan, "no plan is known for {} ranks", request.ranks);
  fail(ErrorCode::plan, "none of {} plans can run on {} ranks; '{}': {}", all.refused.size(),
       request.ranks, all.refused.front().plan, all.refused.front().reason);
}

Prediction fewest_ranks(const std::string& model, const RunOptions& options,
                        const PredictionRequest& request, double deadline, int most,
                        const std::stop_token& stop) {
  require(deadline > 0, ErrorCode::usage, "`deadline` {}: expected seconds above 0", deadline);
  Prediction made{model, request.hardware, 0, {}, {}};
  PredictionRequest asked = request;
  for (asked.ranks = 1; asked.ranks <= most; ++asked.ranks) {
    Prediction found = predict_plans(model, options, asked, {}, stop);
    if (!found.plans.empty() && found.plans.front().seconds() <= deadline) return found;
    made = std::move(found);
  }
  made.plans.clear();
  return made;
}

std::string timeline(const std::string& model, const RunOptions& options,
                     const PredictionRequest& request, TimelineForm form,
                     const std::stop_token& stop) {
  const base::BindStop bind(stop);
  const tensor::BindScope assumed(planner::scope_of(request, nullptr));
  const planner::Cluster cluster = planner::cluster_for(request);
  planner::Subject subject(model, options, request.generate);
  require(!request.plans.empty(), ErrorCode::usage, "a timeline is of one plan: give `plan`");
  const planner::Simulation run =
      planner::simulate(subject.of(request.plans.front()).recording, cluster, true);
  return form == TimelineForm::trace ? planner::trace_of(run) : planner::image_of(run);
}

std::string recording(const std::string& model, const RunOptions& options,
                      const PredictionRequest& request, const std::stop_token& stop) {
  const base::BindStop bind(stop);
  const tensor::BindScope assumed(planner::scope_of(request, nullptr));
  planner::Subject subject(model, options, request.generate);
  require(!request.plans.empty(), ErrorCode::usage, "a recording is of one plan: give `plan`");
  return planner::to_json(subject.of(request.plans.front()).recording).dump();
}

std::string to_json(const Prediction& prediction) {
  base::Json plans = base::Json::array(), refused = base::Json::array();
  for (const PredictedPlan& p : prediction.plans)
    plans.push_back({{"plan", p.plan},
                     {"text_seconds", p.text},
                     {"denoising_seconds", p.denoising},
                     {"decoding_seconds", p.decoding},
                     {"seconds", p.seconds()},
                     {"samples_per_second", p.samples_per_second},
                     {"waiting_share", p.waiting},
                     {"rank_bytes", p.rank_bytes},
                     {"sent_bytes", p.sent_bytes},
                     {"messages", p.messages},
                     {"step_flops", p.flops},
                     {"link_bytes", p.link_bytes}});
  for (const RefusedPlan& r : prediction.refused)
    refused.push_back({{"plan", r.plan}, {"reason", r.reason}});
  return base::Json{{"model", prediction.model},
                    {"hardware", prediction.hardware},
                    {"ranks", prediction.ranks},
                    {"plans", std::move(plans)},
                    {"refused", std::move(refused)}}
      .dump();
}

std::vector<std::string> known_hardware() { return planner::known_clusters(); }

}  // namespace tessera
