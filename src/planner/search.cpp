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
#include "load/safetensors.h"
#include "models/published_models.h"
#include "nn/moe/recorded_routing.h"
#include "planner/candidates.h"
#include "planner/cost.h"
#include "planner/language.h"
#include "planner/timeline.h"
#include "runtime/open_model.h"
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
  require(state.spec.has_value() || state.language, ErrorCode::usage,
          "'{}' makes neither images nor text, so that it has no plans", model);
}

namespace {

std::unique_ptr<runtime::ModelState> opened(const std::string& model, const RunOptions& options) {
  RunOptions alone = options;
  alone.plan = {};
  alone.processes = nullptr;
  alone.threads = std::max(options.threads, 1);
  auto state = std::make_unique<runtime::ModelState>();
  open_subject(model, alone, *state);
  return state;
}

}  // namespace

Subject::Subject(const std::string& model, const RunOptions& options,
                 const GenerateRequest& request)
    : Subject(opened(model, options), request) {}

Subject::Subject(std::unique_ptr<runtime::ModelState> state, const GenerateRequest& request)
    : state_(std::move(state)) {
  require(state_->spec.has_value(), ErrorCode::usage, "'{}' makes no images", state_->name);
  job_ = std::make_unique<diffusion::Job>(diffusion::sketch_job(*state_, request));
}

void Subject::assume_routing(const std::string& trace) {
  const load::SafetensorsFile file(trace);
  std::map<std::string, tensor::Tensor> layers;
  for (const auto& [name, entry] : file.entries())
    if (name.starts_with("routing.")) layers[name] = file.get(name);
  const auto routing = std::make_shared<const nn::RecordedRouting>(layers);
  const nn::Geometry geometry = state_->geometry();
  const parallel::Workload whole = job_->workload();
  const auto check = [&](const char* what, int64_t found, int64_t expected) {
    require(found == expected, ErrorCode::usage,
            "`routing` {}: the experts of {} {}; the predicted run has {}", base::printable(trace),
            found, what, expected);
  };
  check("layers", routing->layers(), static_cast<int64_t>(geometry.experts.size()));
  check("steps", routing->steps(), whole.steps);
  check("sequences", routing->sequences(), int64_t{whole.branches} * whole.samples);
  check("tokens of a sequence", routing->tokens(), whole.tokens());
  require(routing->complete() && routing->experts() <= experts(), ErrorCode::usage,
          "`routing` {}: it names expert {} of {}, or no expert for some token",
          base::printable(trace), routing->experts() - 1, experts());
  job_->planned.routing = routing;
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

const RecordedPlan& Subject::of(const Plan& plan) {
  const auto [at, first] = plans_.try_emplace(to_string(plan));
  if (!first) return at->second;
  try {
    at->second = record_plan(*state_, *job_, plan, brief_, repeats_);
    repeats_ = repeats_ || at->second.repeats;
    brief_ = brief_ && at->second.steady;  // a sampler has the same memory under every plan
  } catch (...) {
    plans_.erase(at);
    throw;
  }
  return at->second;
}

const RecordedPlan& Subject::decoding(int ranks, double room) {
  const auto [at, first] = decodings_.try_emplace({ranks, room});
  if (!first) return at->second;
  try {
    at->second = record_decode(*state_, *job_, ranks, room);
  } catch (...) {
    decodings_.erase(at);
    throw;
  }
  return at->second;
}

double Subject::text_seconds(const Cluster& cluster) const {
  double seconds = 0;
  for (const diffusion::Text& text : job_->asked.texts)
    seconds += seconds_of(text.need.work, computed_in(*state_), cluster.device, cluster.software);
  return seconds;
}

double room_of(const Cluster& cluster) { return cluster.device.memory_bytes * kUsable; }

void require_room(const std::string& what, double bytes, const Cluster& cluster) {
  require(bytes <= room_of(cluster), ErrorCode::memory, "{} takes {} of a rank; {} has room for {}",
          what, admission::amount(bytes), cluster.device.name, admission::amount(room_of(cluster)));
}

namespace {

// Tries 1, 2, 4, ... of the ranks.
Decoding fastest(Subject& subject, const Cluster& cluster, int world) {
  Decoding best;
  if (subject.job().planned.decoded_lines == 0 || !subject.has_vae()) return best;
  bool found = false;
  for (int ranks = 1; ranks <= world; ranks *= 2) {
    try {
      const RecordedPlan& one = subject.decoding(ranks, room_of(cluster));
      require_room(fmt::format("decoding by vae={}", ranks), double(one.rank_bytes), cluster);
      const double seconds = simulate(one.recording, cluster).seconds;
      if (found && seconds >= best.seconds) continue;
      found = true;
      best = {ranks, seconds, one.rank_bytes, ""};
    } catch (const Error& error) {
      if (error.code() != ErrorCode::plan && error.code() != ErrorCode::memory) throw;
      if (!found) best.problem = error.what();
    }
  }
  best.seconds *= subject.job().samples();
  return best;
}

}  // namespace

Decoding Decodings::of(Subject& subject, const Cluster& cluster, int world) {
  const std::lock_guard lock(mutex_);
  const auto [at, first] = found_.try_emplace(world);
  if (!first) return at->second;
  try {
    return at->second = fastest(subject, cluster, world);
  } catch (...) {
    found_.erase(at);
    throw;
  }
}

PredictedPlan predicted(Subject& subject, const Cluster& cluster, const Plan& plan,
                        Decodings& decodings) {
  const RecordedPlan& recorded = subject.of(plan);
  require_room("denoising", double(recorded.rank_bytes), cluster);
  const Simulation run = simulate(recorded.recording, cluster);
  PredictedPlan made;
  const Decoding decoding = decodings.of(subject, cluster, plan.world());
  require(decoding.problem.empty(), ErrorCode::memory, "{}", decoding.problem);
  Plan whole = plan;
  if (decoding.seconds > 0) whole.vae = decoding.ranks;
  made.decoding = decoding.seconds;
  made.plan = to_string(whole);
  made.text = subject.text_seconds(cluster);
  made.denoising = run.seconds;
  made.samples_per_second = subject.job().samples() / made.seconds();
  made.waiting = run.waiting_share();
  made.rank_bytes = std::max(recorded.rank_bytes, decoding.bytes);
  made.sent_bytes = recorded.recording.sent_bytes();
  made.messages = recorded.recording.sent_messages();
  made.flops = recorded.flops;
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

// Returns the current scope with the load of experts that the request assumes.
tensor::Scope scope_of(const PredictionRequest& request) {
  tensor::Scope scope = tensor::current_scope();
  scope.assumptions.expert_load = request.expert_load;
  return scope;
}

void check_load(const std::vector<double>& load, int experts) {
  if (load.empty()) return;
  for (size_t i = 0; i < load.size(); ++i)
    require(load[i] >= 0 && load[i] <= 1e12, ErrorCode::usage,
            "`expert_load` of expert {} is {}: expected a number from 0 to 1e12", i, load[i]);
  require(static_cast<int>(load.size()) == experts, ErrorCode::usage,
          "`expert_load` holds {} numbers; the model's layers have {} experts", load.size(),
          experts);
  require(std::any_of(load.begin(), load.end(), [](double share) { return share > 0; }),
          ErrorCode::usage, "`expert_load` is 0 for all {} experts: expected one above 0", experts);
}

/// True if moe=fused is predicted for a cluster: on CPUs, as no GPU has been timed.
bool fuses(const Cluster& cluster) { return cluster.device.units == 0; }

/// Holds a model of images or of text.
class Subjects {
 public:
  Subjects(const std::string& model, const RunOptions& options, const PredictionRequest& request) {
    auto state = opened(model, options);
    if (state->language)
      language_.emplace(std::move(state), request);
    else
      images_.emplace(std::move(state), request.generate);
    check_load(request.expert_load, language_ ? language_->experts() : images_->experts());
    if (request.routing.empty()) return;
    require(images_.has_value() && request.expert_load.empty(), ErrorCode::usage,
            "`routing` {}: give it for a model of images, without `expert_load`",
            base::printable(request.routing));
    images_->assume_routing(request.routing);
  }
  std::vector<Plan> plans(const PredictionRequest& request, const Cluster& cluster) const {
    if (!request.plans.empty()) return request.plans;
    if (language_) return language_->plans(request.ranks, fuses(cluster));
    const diffusion::Job& job = images_->job();
    return candidates({request.ranks, job.samples(), job.planned.guidance.branches(), request.stale,
                       images_->experts(), images_->blocks(), fuses(cluster)});
  }
  PredictedPlan predicted(const Cluster& cluster, const Plan& plan, Decodings& decodings) {
    require(plan.moe != MoeForm::fused || fuses(cluster), ErrorCode::plan,
            "moe=fused on GPUs is not predicted, because its launches have not been timed on one; "
            "use moe=bulk");
    if (language_) return language_->predicted(cluster, plan);
    images_->forget();
    return planner::predicted(*images_, cluster, plan, decodings);
  }
  Recording recording(const Plan& plan) {
    return language_ ? language_->of(plan).recording : images_->of(plan).recording;
  }

 private:
  std::optional<LanguageSubject> language_;
  std::optional<Subject> images_;
};

/// Threads take the plans of a list in turn, and keep the prediction or refusal of each plan.
struct Search {
  const PredictionRequest& request;
  const Cluster& cluster;
  const std::vector<Plan>& plans;
  std::vector<std::optional<PredictedPlan>> found{};
  std::vector<std::string> refused{};
  Decodings decodings{};
  std::atomic<size_t> next{0};
  std::mutex mutex{};
  std::exception_ptr failure{};

  void work(Subjects& subject, const std::function<void(int, int)>& progress,
            const std::stop_token& stop) {
    try {
      const base::BindStop bind(stop);
      const tensor::BindScope assumed(scope_of(request));
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
  void one(Subjects& subject, size_t i) {
    try {
      found[i] = subject.predicted(cluster, plans[i], decodings);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::plan && error.code() != ErrorCode::memory) throw;
      refused[i] = error.what();
    }
  }
};

Prediction searched(const std::string& model, const RunOptions& options,
                    const PredictionRequest& request, const Cluster& cluster,
                    const std::function<void(int, int)>& progress, const std::stop_token& stop) {
  const tensor::BindScope assumed(scope_of(request));
  Subjects first(model, options, request);
  const std::vector<Plan> plans = first.plans(request, cluster);
  Search search{request, cluster, plans};
  search.found.resize(plans.size());
  search.refused.resize(plans.size());
  const int threads =
      options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads && t < static_cast<int>(plans.size()); ++t)
      others.emplace_back([&] {
        std::optional<Subjects> mine;
        const tensor::BindScope here(scope_of(request));
        try {
          mine.emplace(model, options, request);
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
  const char* const many = request.ranks == 1 ? "" : "s";
  require(!all.refused.empty(), ErrorCode::plan, "no plan is known for {} rank{}", request.ranks,
          many);
  fail(ErrorCode::plan, "none of {} plan{} can run on {} rank{}; '{}': {}", all.refused.size(),
       all.refused.size() == 1 ? "" : "s", request.ranks, many, all.refused.front().plan,
       all.refused.front().reason);
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
  const tensor::BindScope assumed(planner::scope_of(request));
  const planner::Cluster cluster = planner::cluster_for(request);
  planner::Subjects subject(model, options, request);
  require(!request.plans.empty(), ErrorCode::usage, "a timeline is of one plan: give `plan`");
  const planner::Simulation run =
      planner::simulate(subject.recording(request.plans.front()), cluster, true);
  return form == TimelineForm::trace ? planner::trace_of(run) : planner::image_of(run);
}

std::string recording(const std::string& model, const RunOptions& options,
                      const PredictionRequest& request, const std::stop_token& stop) {
  const base::BindStop bind(stop);
  const tensor::BindScope assumed(planner::scope_of(request));
  planner::Subjects subject(model, options, request);
  require(!request.plans.empty(), ErrorCode::usage, "a recording is of one plan: give `plan`");
  return planner::to_json(subject.recording(request.plans.front())).dump();
}

std::string to_json(const Prediction& prediction) {
  base::Json plans = base::Json::array(), refused = base::Json::array();
  for (const PredictedPlan& p : prediction.plans) {
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
    if (p.passes == 0) continue;
    plans.back()["passes"] = p.passes;
    plans.back()["pass_seconds"] = p.pass_seconds;
  }
  for (const RefusedPlan& r : prediction.refused)
    refused.push_back({{"plan", r.plan}, {"reason", r.reason}});
  return base::Json{{"model", prediction.model},
                    {"hardware", prediction.hardware},
                    {"ranks", prediction.ranks},
                    {"plans", std::move(plans)},
                    {"refused", std::move(refused)}}
      .dump();
}

std::vector<double> read_expert_load(const std::string& file) {
  base::Json found = base::read_json(file);
  if (found.is_object() && found.contains("expert_load")) found = base::Json(found["expert_load"]);
  require(found.is_array() && !found.empty(), ErrorCode::usage,
          "`expert_load` {}: expected a list of numbers, or an object with one under 'expert_load'",
          base::printable(file));
  std::vector<double> load;
  for (const base::Json& share : found) {
    require(share.is_number() && share >= 0, ErrorCode::usage,
            "`expert_load` {}: of expert {} it is {}; expected a number of at least 0",
            base::printable(file), load.size(), base::printable(share.dump()));
    load.push_back(share.get<double>());
  }
  return load;
}

std::vector<std::string> known_hardware() { return planner::known_clusters(); }

}  // namespace tessera
