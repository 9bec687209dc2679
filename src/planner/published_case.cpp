#include "planner/published_case.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "models/published_models.h"

namespace tessera::planner {
namespace {

using base::Json;

constexpr int kMostPatches = 32;
constexpr int64_t kMostSide = 1 << 16;
constexpr double kEagerKernel = 26e-6;  // seconds of the host, Python and launch

int64_t whole(const Json& row, const char* key, int64_t usual, int64_t most) {
  const auto found = row.find(key);
  if (found == row.end() || found->is_null()) return usual;
  require(found->is_number_integer() && found->get<double>() >= 0 &&
              found->get<double>() <= double(most),
          ErrorCode::usage, "'{}' is {}; expected a whole number from 0 to {}", key, found->dump(),
          most);
  return found->get<int64_t>();
}

std::string text(const Json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || found->is_null()) return "";
  require(found->is_string(), ErrorCode::usage, "'{}' is {}; expected a text", key, found->dump());
  return found->get<std::string>();
}

// Kernels of an op, and their bytes, counted in diffusers 0.30.3 and in the ring attention of
// long-context-attention (bench/evaluation/pytorch_kernels.py): a modulation is three kernels after
// its norm, a norm in f32 eight, rotary embeddings five to nine.
const std::map<std::string, Unfused>& eager_ops() {
  static const std::map<std::string, Unfused> ops{
      {"other", {4, 2.5}},  {"matmul", {2, 1}},  {"attention", {3, 1}}, {"layer_norm", {4, 3}},
      {"rms_norm", {8, 9}}, {"rope", {7, 10}},   {"combine", {10, 5}},  {"concat", {1, 1}},
      {"cast", {1, 1}},     {"permute", {1, 1}}, {"add_row", {1, 1}}};
  return ops;
}

// PyTorch's overhead for a device: host time of a kernel, and traffic of unfused element-wise ops.
// The numbers are the same for all testbeds.
Software software_of(const PublishedCase& run) {
  Software software;
  software.name = run.compiled ? "PyTorch, compiled" : "PyTorch";
  software.host_op_seconds = run.compiled ? 10e-6 : kEagerKernel;
  if (!run.compiled) software.unfused = eager_ops();
  software.host_message_seconds = run.compiled ? 4e-6 : 50e-6;
  software.element_bytes = run.compiled ? 1.2 : 2.5;
  return software;
}

std::string key_of(const PublishedCase& run) {
  return fmt::format("{}/{}x{}x{}/{}/{}", models::model_key(run.model), run.width, run.height,
                     run.frames, run.steps.value_or(0), run.samples);
}

bool single_method(const Plan& plan) {
  return (plan.cfg > 1) + (plan.pipefusion > 1) + (plan.ulysses > 1) + (plan.ring > 1) +
             (plan.tensor > 1) + (plan.distrifusion > 1) <=
         1;
}

}  // namespace

PublishedCase case_of(const Json& row) {
  require(row.is_object(), ErrorCode::usage, "a row is {}; expected an object", row.dump());
  PublishedCase run;
  run.model = text(row, "model");
  run.hardware = text(row, "hardware");
  run.ranks = static_cast<int>(std::max<int64_t>(whole(row, "world", 1, 512), 1));
  run.width = whole(row, "width", 0, kMostSide);
  run.height = whole(row, "height", 0, kMostSide);
  run.frames = whole(row, "frames", 0, 100000);
  if (const int64_t steps = whole(row, "steps", 0, 10000); steps > 0)
    run.steps = static_cast<int>(steps);
  run.samples = static_cast<int>(std::max<int64_t>(whole(row, "batch", 1, 4096), 1));
  if (const auto found = row.find("compile"); found != row.end() && found->is_boolean())
    run.compiled = found->get<bool>();
  if (const auto cond = row.find("cond"); cond != row.end() && cond->is_object())
    run.warmup = static_cast<int>(std::max<int64_t>(whole(*cond, "warmup_steps", 1, 10000), 1));
  const auto plan = row.find("plan");
  if (plan == row.end() || plan->is_null()) return run;
  require(plan->is_object(), ErrorCode::usage, "'plan' is {}; expected an object", plan->dump());
  for (const auto& [method, degree] : plan->items()) {
    (void)degree;
    run.plan[method] = static_cast<int>(whole(*plan, method.c_str(), 1, 512));
  }
  return run;
}

Plan plan_of(const PublishedCase& run) {
  Plan plan;
  plan.warmup = run.warmup;
  if (run.schedule == "displaced") plan.schedule = ExpertSchedule::displaced;
  if (run.schedule == "dice") {
    plan.schedule = ExpertSchedule::interweaved;
    plan.sync = SyncLayers::deep;
    plan.conditional = KeptSlot::low;
  }
  for (const auto& [method, degree] : run.plan) {
    if (method == "cfg")
      plan.cfg = degree;
    else if (method == "pipefusion")
      plan.pipefusion = degree;
    else if (method == "ulysses")
      plan.ulysses = degree;
    else if (method == "ring")
      plan.ring = degree;
    else if (method == "tensor")
      plan.tensor = degree;
    else if (method == "distrifusion")
      plan.distrifusion = degree;
    else if (method == "data")
      plan.data = degree;
    else if (method == "expert")
      plan.expert = plan.data = degree;
    else
      fail(ErrorCode::usage, "the method '{}' is not known here", method);
  }
  return plan;
}

Cluster PublishedRuns::cluster(const PublishedCase& run) {
  auto found = known_cluster(run.hardware);
  require(found.has_value(), ErrorCode::usage, "the hardware '{}' is not known", run.hardware);
  found->software = software_of(run);
  return *found;
}

Subject& PublishedRuns::subject(const PublishedCase& run) {
  auto& subject = subjects_[key_of(run)];
  if (subject) return *subject;
  GenerateRequest request;
  request.width = run.width;
  request.height = run.height;
  request.frames = run.frames;
  request.steps = run.steps;
  request.decode = false;
  request.count = run.samples * (run.plan.contains("expert") ? run.plan.at("expert") : 1);
  const models::PublishedModel* const model = models::published_model(run.model);
  require(model != nullptr, ErrorCode::usage, "the model '{}' is none that Tessera runs",
          run.model);
  subject = std::make_unique<Subject>(model->name, RunOptions{.threads = 1}, request);
  return *subject;
}

// Seconds of text and denoising with a fixed number of patches.
double PublishedRuns::plan_seconds(const PublishedCase& run, const Plan& plan) {
  const Cluster there = cluster(run);
  const std::string key =
      fmt::format("{}/{}/{}/{}", key_of(run), run.hardware, run.compiled, to_string(plan));
  if (const auto refused = refused_.find(key); refused != refused_.end())
    fail(ErrorCode::plan, "{}", refused->second);
  if (const auto known = seconds_.find(key); known != seconds_.end()) return known->second;
  try {
    Subject& of = subject(run);
    const RecordedPlan& recorded = of.of(plan);
    require(double(recorded.rank_bytes) <= room_of(there), ErrorCode::memory,
            "a rank takes {:.1f} GB", double(recorded.rank_bytes) / 1e9);
    return seconds_[key] = simulate(recorded.recording, there).seconds + of.text_seconds(there);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::plan || error.code() == ErrorCode::memory)
      refused_[key] = error.what();
    throw;
  }
}

double PublishedRuns::seconds(const PublishedCase& run) {
  Plan plan = plan_of(run);
  if (plan.pipefusion == 1) return plan_seconds(run, plan);
  double best = -1;
  for (plan.patches = plan.pipefusion; plan.patches <= std::min(kMostPatches, 2 * plan.pipefusion);
       plan.patches *= 2) {
    const double seconds = plan_seconds(run, plan);
    if (best < 0 || seconds < best) best = seconds;
  }
  require(best >= 0, ErrorCode::plan, "pipefusion={} has more stages than patches",
          plan.pipefusion);
  return best;
}

const std::vector<PublishedRuns::Ranked>& PublishedRuns::all(const PublishedCase& run,
                                                             bool single) {
  auto& found = ranked_[fmt::format("{}/{}/{}/{}/{}", key_of(run), run.hardware, run.compiled,
                                    run.ranks, single)];
  if (!found.empty()) return found;
  const int heads = static_cast<int>(subject(run).heads());
  for (int cfg = 1; cfg <= 2; ++cfg)
    for (int stages = 1; stages <= run.ranks; stages *= 2)
      for (int ulysses = 1; ulysses <= run.ranks; ++ulysses) {
        if (run.ranks % (cfg * stages * ulysses) != 0 || heads % ulysses != 0) continue;
        PublishedCase one = run;
        one.plan = {{"cfg", cfg},
                    {"pipefusion", stages},
                    {"ulysses", ulysses},
                    {"ring", run.ranks / (cfg * stages * ulysses)}};
        if (single && (cfg > 1 || !single_method(plan_of(one)))) continue;
        try {
          found.push_back({plan_of(one), seconds(one)});
        } catch (const Error& error) {
          if (error.code() == ErrorCode::cancelled) throw;
        }
      }
  for (const char* method : {"tensor", "distrifusion"}) {
    if (run.ranks == 1) break;
    PublishedCase one = run;
    one.plan = {{method, run.ranks}};
    try {
      found.push_back({plan_of(one), seconds(one)});
    } catch (const Error& error) {
      if (error.code() == ErrorCode::cancelled) throw;
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Ranked& a, const Ranked& b) { return a.seconds < b.seconds; });
  return found;
}

int64_t PublishedRuns::rank_bytes(const PublishedCase& run) {
  Plan plan = plan_of(run);
  if (plan.pipefusion > 1) plan.patches = plan.pipefusion;
  return subject(run).of(plan).rank_bytes;
}

Simulation PublishedRuns::simulation(const PublishedCase& run) {
  return simulate(subject(run).of(plan_of(run)).recording, cluster(run));
}

}  // namespace tessera::planner
