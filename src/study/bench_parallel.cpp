#include "study/bench_parallel.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "admission/dry_run.h"
#include "admission/memory_plan.h"
#include "base/fail.h"
#include "base/json.h"
#include "base/stop.h"
#include "base/stopwatch.h"
#include "cluster/agree.h"
#include "diffusion/plan_job.h"
#include "runtime/choose_stages.h"
#include "runtime/device.h"
#include "runtime/open_model.h"
#include "tessera/engine.h"
#include "tessera/plan_costs.h"

namespace tessera {
namespace {

constexpr int kPatches[] = {1, 2, 4, 8, 16, 32};
constexpr int kMostRanksCompared = 64;

using AxisSize = int Plan::*;
constexpr AxisSize kAxes[] = {&Plan::data,    &Plan::cfg,    &Plan::pipefusion,   &Plan::ring,
                              &Plan::ulysses, &Plan::tensor, &Plan::distrifusion, &Plan::shard};

// All products of the axes from `axis` on with `ranks` ranks in total.
void add_products(Plan plan, size_t axis, int ranks, std::vector<Plan>& plans) {
  if (axis == std::size(kAxes)) {
    if (ranks == 1) plans.push_back(plan);
    return;
  }
  for (int n = 1; n <= ranks; ++n) {
    if (ranks % n != 0 || (kAxes[axis] == &Plan::cfg && n > 2)) continue;
    plan.*kAxes[axis] = n;
    add_products(plan, axis + 1, ranks / n, plans);
  }
}

void add_experts(const Plan& plan, std::vector<Plan>& plans) {
  const int holders = plan.data * plan.cfg * plan.ring * plan.ulysses * plan.distrifusion;
  for (int n = 2; n <= holders; ++n) {
    if (holders % n != 0) continue;
    Plan shared = plan;
    shared.expert = n;
    plans.push_back(shared);
    shared.moe = MoeForm::fused;
    plans.push_back(shared);
    shared.moe = MoeForm::bulk;
    shared.schedule = ExpertSchedule::interweaved;
    plans.push_back(shared);
  }
}

int axes_cut(const Plan& plan) {
  const auto split = [&](AxisSize axis) { return plan.*axis > 1; };
  return static_cast<int>(std::count_if(std::begin(kAxes), std::end(kAxes), split)) +
         (plan.expert > 1 ? 1 : 0);
}

/// The plans of a comparison, on an open model.
struct Comparison {
  const std::string& name;
  const RunOptions& options;
  const PlanCostsRequest& request;
  const std::function<void(const std::string&, int, int)>& progress;
  const std::stop_token& stop;
  int64_t room = 0;  // smallest memory of all processes, in bytes
  PlanCosts costs{};
  std::vector<Plan> plans{};  // in the order of costs.plans, while plans are measured
  std::vector<std::vector<double>> seconds{};

  void predict(runtime::ModelState& state);
  void measure(const GenerateRequest& generate_request);
  std::optional<PlanCost> predicted(runtime::ModelState& state, const diffusion::Job& job,
                                    const Plan& plan);
  bool measured(size_t plan, const GenerateRequest& generate_request);
};

std::optional<PlanCost> Comparison::predicted(runtime::ModelState& state, const diffusion::Job& job,
                                              const Plan& plan) {
  state.options.plan = plan;
  admission::DryRun prediction;
  try {
    require(problems(plan, plan.ranks()).empty(), ErrorCode::plan, "not for any model");
    runtime::check_weights(plan, state.place);
    runtime::choose_stages(state);
    prediction = admission::dry_run(state, job);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::plan) throw;
    ++costs.refused;
    return {};
  }
  if (prediction.process > room) {
    ++costs.too_large;
    return {};
  }
  PlanCost cost{.plan = to_string(plan)};
  for (const Inspection::Rank& rank : prediction.ranks) {
    cost.bytes += rank.sent;
    cost.rank_bytes = std::max(cost.rank_bytes, rank.total);
    cost.flops = std::max(cost.flops, rank.flops);
  }
  cost.messages = std::llround(prediction.messages);
  return cost;
}

void Comparison::predict(runtime::ModelState& state) {
  const diffusion::Job job = diffusion::sketch_job(state, request.generate);
  std::vector<Plan> all_plans = study::plans_for(request.ranks, !state.geometry().experts.empty());
  std::stable_sort(all_plans.begin(), all_plans.end(),
                   [](const Plan& a, const Plan& b) { return axes_cut(a) < axes_cut(b); });
  std::vector<std::pair<PlanCost, Plan>> candidates;
  size_t i = 0;
  for (; i < all_plans.size() && !costs.stopped; ++i) {
    const int tries = static_cast<int>(candidates.size()) + costs.too_large;
    if (tries == request.most) break;
    if (progress) progress("predicted", static_cast<int>(i), static_cast<int>(all_plans.size()));
    bool stopped = false;
    try {
      if (auto cost = predicted(state, job, all_plans[i]))
        candidates.emplace_back(*std::move(cost), all_plans[i]);
    } catch (const Error& e) {
      if (e.code() != ErrorCode::cancelled) throw;
      stopped = true;
    }
    costs.stopped = cluster::Ranks::of(options).most(stopped ? 1 : 0) > 0;
  }
  costs.untried = static_cast<int>(all_plans.size() - i) + (costs.stopped ? 1 : 0);
  std::stable_sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.flops, a.first.bytes) < std::tie(b.first.flops, b.first.bytes);
  });
  for (auto& [cost, plan] : candidates) {
    costs.plans.push_back(std::move(cost));
    plans.push_back(plan);
  }
}

// False: the plan cannot run after all.
bool Comparison::measured(size_t plan, const GenerateRequest& generate_request) {
  RunOptions run = options;
  run.plan = plans[plan];
  RunControl control;
  control.stop = stop;
  try {
    const GenerateResult result = Model::open(name, run, stop).generate(generate_request, control);
    if (result.elsewhere) return true;
    seconds[plan].push_back(result.report.phase_seconds.at(Phase::denoise) /
                            std::max(result.report.forwards, 1));
  } catch (const Error& e) {
    // If ranks are processes, the others may still be in the run.
    if (!cluster::Ranks::of(options).all_here() ||
        (e.code() != ErrorCode::plan && e.code() != ErrorCode::memory))
      throw;
    ++(e.code() == ErrorCode::plan ? costs.refused : costs.too_large);
    return false;
  }
  return true;
}

void Comparison::measure(const GenerateRequest& generate_request) {
  const base::Stopwatch clock;
  seconds.resize(plans.size());
  std::vector<bool> out(plans.size());
  const int total = request.rounds * static_cast<int>(plans.size());
  int done = 0;
  for (int round = 0; round < request.rounds; ++round)
    for (size_t p = 0; p < plans.size(); ++p) {
      if (progress) progress("measured", done++, total);
      if (out[p]) continue;
      const bool stops = stop.stop_requested();
      costs.stopped = !cluster::Ranks::of(options).word(!stops);
      if (costs.stopped || !cluster::Ranks::of(options).word(clock.seconds() <= request.seconds))
        return;
      try {
        out[p] = !measured(p, generate_request);
      } catch (const Error& e) {
        if (e.code() != ErrorCode::cancelled) throw;
        costs.stopped = true;
        return;
      }
      if (out[p]) costs.plans[p].rounds = -1;
    }
}

void check(const PlanCostsRequest& request, const RunOptions& options) {
  require(request.ranks >= 1 && request.ranks <= kMostRanksCompared, ErrorCode::usage,
          "{} ranks: plans are compared for 1 to {}", request.ranks, kMostRanksCompared);
  require(request.rounds >= 1 && request.rounds <= 10000, ErrorCode::usage,
          "{} rounds: expected 1 to 10000", request.rounds);
  require(request.most >= 1, ErrorCode::usage, "{} plans: expected 1 or more", request.most);
  require(request.seconds >= 0, ErrorCode::usage, "{} seconds: expected 0 or more",
          request.seconds);
  require(to_string(options.plan).empty(), ErrorCode::usage,
          "all plans are compared, not '{}': leave out `plan`", to_string(options.plan));
}

}  // namespace

std::vector<Plan> study::plans_for(int ranks, bool experts) {
  std::vector<Plan> products, plans;
  add_products({}, 0, ranks, products);
  for (const Plan& product : products) {
    for (const int patches : kPatches) {
      if (product.pipefusion == 1 && patches > 1) continue;
      Plan plan = product;
      if (plan.pipefusion > 1) plan.patches = patches;
      plans.push_back(plan);
      if (experts) add_experts(plan, plans);
    }
    if (product.distrifusion == 1) continue;
    Plan finer = product;
    finer.shards = 2 * product.distrifusion;
    plans.push_back(finer);
    if (experts) add_experts(finer, plans);
  }
  return plans;
}

PlanCosts compare_plans(const std::string& model, const RunOptions& options,
                        const PlanCostsRequest& request,
                        const std::function<void(const std::string&, int, int)>& progress,
                        const std::stop_token& stop) {
  check(request, options);
  const base::BindStop bind(stop);
  runtime::ModelState state;
  RunOptions single_process = options;
  single_process.processes = nullptr;
  runtime::open_model(model, single_process, state);
  state.options.processes = options.processes;
  require(
      state.spec.has_value(), ErrorCode::usage,
      "'{}' makes no images; of language models plans are expert=N and tensor=N, which 'tessera "
      "complete `report`' times",
      state.name);
  PlanCostsRequest adjusted_request = request;
  GenerateRequest& generate = adjusted_request.generate;
  generate.decode = false;
  if (generate.classes.empty() && generate.prompts.empty() && generate.embeddings.empty()) {
    if (state.spec->classes > 0)
      generate.classes = {"0"};
    else
      generate.prompts = {"a boat on a lake below a mountain"};
  }
  // Predictions use texts of the usual length and read no prompts.
  if (!generate.embeddings.empty()) diffusion::plan_job(state, generate);
  const int64_t room = -cluster::Ranks::of(options).most(-admission::room_of(state).bytes);
  Comparison comparison{model, options, adjusted_request, progress, stop, room};
  comparison.predict(state);
  if (request.seconds > 0 && !comparison.costs.stopped) comparison.measure(generate);
  PlanCosts& costs = comparison.costs;
  for (size_t p = 0; p < comparison.seconds.size(); ++p) {
    std::vector<double>& times = comparison.seconds[p];
    if (times.empty()) continue;
    std::sort(times.begin(), times.end());
    costs.plans[p].rounds = static_cast<int>(times.size());
    costs.plans[p].seconds = times[times.size() / 2];
  }
  std::erase_if(costs.plans, [](const PlanCost& cost) { return cost.rounds < 0; });
  std::stable_sort(costs.plans.begin(), costs.plans.end(),
                   [](const PlanCost& a, const PlanCost& b) {
                     const bool first = a.seconds >= 0, second = b.seconds >= 0;
                     return first != second ? first : a.seconds < b.seconds;
                   });
  return std::move(costs);
}

std::string to_json(const PlanCost& cost) {
  base::Json seconds;
  if (cost.seconds >= 0) seconds = cost.seconds;
  return base::Json{{"plan", cost.plan},         {"step_seconds", seconds},
                    {"rounds", cost.rounds},     {"sent_bytes", cost.bytes},
                    {"messages", cost.messages}, {"rank_bytes", cost.rank_bytes},
                    {"flops", cost.flops}}
      .dump();
}

}  // namespace tessera
