#include "planner/score_rows.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "base/fail.h"
#include "models/published_models.h"
#include "runtime/count_parameters.h"
#include "runtime/open_model.h"

namespace tessera::planner {
namespace {

using base::Json;

std::string text(const Json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : "";
}

PublishedCase with(PublishedCase run, std::map<std::string, int> plan) {
  run.plan = std::move(plan);
  return run;
}

PublishedCase alone(PublishedCase run) {
  run.ranks = 1;
  return with(std::move(run), {});
}

void require_size(const PublishedCase& run) {
  const models::PublishedModel* const model = models::published_model(run.model);
  require(model != nullptr, ErrorCode::usage, "the model '{}' is none that Tessera runs",
          run.model);
}

double best(PublishedRuns& runs, const PublishedCase& run, bool single = false) {
  const auto& all = runs.all(run, single);
  require(!all.empty(), ErrorCode::plan, "no plan can run");
  return all.front().seconds;
}

// Seconds of the row's plan, or of the best plan if the row has none.
double of_row(PublishedRuns& runs, const PublishedCase& run, const Json& row) {
  return run.plan.empty() && row.contains("world") && run.ranks > 1 ? best(runs, run)
                                                                    : runs.seconds(run);
}

double speedup(PublishedRuns& runs, const PublishedCase& run, const Json& row) {
  return runs.seconds(alone(run)) / of_row(runs, run, row);
}

double half_over_whole(PublishedRuns& runs, const PublishedCase& run, const Json& row) {
  PublishedCase half = run;
  half.ranks = run.ranks / 2;
  return best(runs, half) / of_row(runs, run, row);
}

double second_over_pipefusion(PublishedRuns& runs, const PublishedCase& run, const Json& row) {
  double second = std::numeric_limits<double>::infinity();
  for (const auto& one : runs.all(run, true))
    if (one.plan.pipefusion == 1) second = std::min(second, one.seconds);
  return second / of_row(runs, run, row);
}

double compile_gain(PublishedRuns& runs, PublishedCase run, const Json& row) {
  run.compiled = false;
  const double eager = of_row(runs, run, row);
  run.compiled = true;
  return eager / of_row(runs, run, row);
}

// Waiting time of ranks in the all-to-alls of all layers.
double exchange_seconds(PublishedRuns& runs, const PublishedCase& run) {
  const Simulation whole = runs.simulation(run);
  double waits = 0;
  for (const double seconds : whole.wait_seconds) waits += seconds;
  return waits / double(whole.wait_seconds.size());
}

double exchange_share(PublishedRuns& runs, const PublishedCase& run) {
  return 100 * exchange_seconds(runs, run) / runs.simulation(run).seconds;
}

double over_synchronous(PublishedRuns& runs, const PublishedCase& run, const Json& row) {
  const std::string method = text(row, "method");
  require(run.plan.contains("expert"), ErrorCode::usage, "the batch of this row is not stated");
  PublishedCase stale = run;
  stale.samples = run.samples > 1 ? run.samples : 16;
  const double sync = runs.seconds(stale);
  stale.schedule = method.find("displaced") != std::string::npos ? "displaced" : "dice";
  const Json cond = row.value("cond", Json::object());
  stale.warmup = static_cast<int>(cond.value("synchronized_steps", 1));
  return sync / runs.seconds(stale);
}

// Seconds in which the row's ranks decode an image; none: the image does not fit into memory.
std::optional<double> decode_seconds(PublishedRuns& runs, const PublishedCase& run, const Json& row,
                                     int64_t side) {
  const Json cond = row.value("cond", Json::object());
  PublishedCase decoded = run;
  decoded.model = cond.value("latent_channels", 16) == 4 ? "pixart_alpha" : "sd3_medium";
  decoded.width = decoded.height = side;
  decoded.steps = 1;
  const int ranks = run.plan.contains("vae") ? run.plan.at("vae") : 1;
  const Cluster there = PublishedRuns::cluster(run);
  const RecordedPlan& recorded =
      runs.subject(decoded).decoding(ranks, std::numeric_limits<double>::infinity());
  if (double(recorded.rank_bytes) > room_of(there)) return {};
  return simulate(recorded.recording, there).seconds;
}

double largest_side(PublishedRuns& runs, const PublishedCase& run, const Json& row) {
  double most = 0;
  for (const int64_t side : {1024, 2048, 4096, 7168, 8192})
    if (decode_seconds(runs, run, row, side)) most = double(side);
  return most;
}

double parameters_of(const std::string& model, const std::string& part) {
  double sum = 0;
  runtime::ModelState state;
  runtime::open_published(model, RunOptions{.threads = 1}, state);
  const Json& parts = models::published_model(model)->description.at("parts");
  for (const auto& item : parts.items())
    if (item.key() == part || (part == "text_encoder" && item.key().starts_with(part)))
      sum += double(runtime::parameters_on_meta(state, state.folder.component(item.key())));
  return sum;
}

// As printed: binary units. Published files of FLUX.1 and CogVideoX are bf16, the others f32.
double disk_size(const PublishedCase& run, const Json& row) {
  const std::string part = row.value("cond", Json::object()).value("component", "");
  const std::string key = models::published_model(run.model)->name;
  const bool half = (key.starts_with("flux") || key.starts_with("cogvideo")) && part != "vae";
  const double bytes = parameters_of(key, part) * (half ? 2 : 4);
  return bytes / (text(row, "unit") == "MB" ? 1048576.0 : 1073741824.0);
}

// Aimuyo et al. 2025, 5.4: 4 E max(bM, EC) H b bytes.
double symmetric_size(const Json& row) {
  const Json cond = row.value("cond", Json::object());
  for (const char* key : {"experts", "tokens"})
    require(cond.contains(key) && cond.at(key).is_number_integer() && cond.at(key) > 0,
            ErrorCode::usage, "the row does not say its '{}'", key);
  const double experts = cond.at("experts"),
               capacity =
                   std::max(cond.value("tile_rows", 128.0), double(cond.at("tokens")) / experts);
  return 4 * experts * capacity * 1024 * (text(row, "dtype") == "fp16" ? 2 : 4) / 1048576;
}

using Number = std::function<double(PublishedRuns&, const PublishedCase&, const Json&)>;

struct Metric {
  Scored::Kind kind;
  Number number;
};

const std::map<std::string, Metric>& metrics() {
  using Kind = Scored::Kind;
  static const std::map<std::string, Metric> all{
      {"latency", {Kind::latency, of_row}},
      {"speedup_vs_1gpu", {Kind::ratio, speedup}},
      {"parallel_efficiency",
       {Kind::ratio, [](auto& runs, const auto& run,
                        const Json& row) { return speedup(runs, run, row) / run.ranks; }}},
      {"latency_ratio_8_over_16_gpus", {Kind::ratio, half_over_whole}},
      {"latency_ratio_distrifusion_over_hybrid",
       {Kind::ratio,
        [](auto& runs, const auto& run, const Json& row) {
          return runs.seconds(with(run, {{"distrifusion", run.ranks}})) / of_row(runs, run, row);
        }}},
      {"latency_ratio_best_single_over_hybrid",
       {Kind::ratio,
        [](auto& runs, const auto& run, const Json& row) {
          return best(runs, run, true) / of_row(runs, run, row);
        }}},
      {"latency_ratio_second_best_over_pipefusion", {Kind::ratio, second_over_pipefusion}},
      {"latency_ratio_usp_over_pipefusion",
       {Kind::ratio,
        [](auto& runs, const auto& run, const Json& row) {
          return runs.seconds(with(run, {{"ulysses", run.ranks / 2}, {"ring", 2}})) /
                 of_row(runs, run, row);
        }}},
      {"speedup_compile_over_eager", {Kind::ratio, compile_gain}},
      {"speedup_vs_sync_ep", {Kind::ratio, over_synchronous}},
      {"all_to_all_time",
       {Kind::other,
        [](auto& runs, const auto& run, const Json&) { return exchange_seconds(runs, run); }}},
      {"all_to_all_time_share",
       {Kind::ratio,
        [](auto& runs, const auto& run, const Json&) { return exchange_share(runs, run); }}},
      {"max_image_side", {Kind::other, largest_side}},
      {"disk_size",
       {Kind::other, [](auto&, const auto& run, const Json& row) { return disk_size(run, row); }}},
      {"parameter_memory",
       {Kind::other,
        [](auto&, const auto& run, const Json&) {
          return parameters_of(models::published_model(run.model)->name, "transformer") * 2 / 1e9;
        }}},
  };
  return all;
}

// The rank of a row's plan among all plans, or among single methods.
Scored rank_of(PublishedRuns& runs, const PublishedCase& run, const Json& row, double measured) {
  const bool single =
      row.value("cond", Json::object()).value("among", "all plans") == "single methods";
  const Plan wanted = plan_of(run);
  const auto& all = runs.all(run, single);
  double place = 1;
  for (const auto& one : all) {
    Plan plan = one.plan;
    plan.patches = wanted.patches;
    if (plan == wanted)
      return {Scored::Kind::rank, place, measured, (place <= std::max(3.0, measured)) ? 0.0 : 1.0};
    place += 1;
  }
  fail(ErrorCode::plan, "the plan '{}' cannot run here", to_string(wanted));
}

// Whether a measured program supports a plan: its limits, and memory.
bool can_run(PublishedRuns& runs, const PublishedCase& run) {
  const auto degree = [&](const char* method) {
    return run.plan.contains(method) ? run.plan.at(method) : 1;
  };
  PublishedCase small = run;
  if (small.width == 0) small.width = small.height = 1024;
  if (runs.subject(small).heads() % degree("ulysses") != 0) return false;
  const int64_t lines = small.height / 16;
  if (lines % (degree("ring") * degree("ulysses")) != 0) return false;
  try {
    return double(runs.rank_bytes(small)) <= room_of(PublishedRuns::cluster(small));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::plan) throw;
    return false;
  }
}

double relative(double predicted, double measured) {
  return measured == 0 ? predicted : (predicted - measured) / measured;
}

}  // namespace

Scored scored(PublishedRuns& runs, const Json& row) {
  require(row.value("usable", true), ErrorCode::usage, "the source leaves open what was run");
  const std::string metric = text(row, "metric");
  const PublishedCase run = case_of(row);
  const auto value = row.find("value");
  std::optional<double> measured;
  if (value != row.end() && value->is_number()) measured = value->get<double>();
  if (metric == "symmetric_tensor_size") {
    require(measured.has_value(), ErrorCode::usage, "the row has no value");
    const double size = symmetric_size(row);
    return {Scored::Kind::other, size, measured, relative(size, *measured)};
  }
  if (metric == "vae_decode_time") {
    require(!measured || run.plan.empty(), ErrorCode::usage,
            "the source's times grow with the devices: they hold what connecting them takes");
    const auto made = decode_seconds(runs, run, row, run.width);
    if (!measured || !made) {
      const bool agree = measured.has_value() == made.has_value();
      return {Scored::Kind::other, made, measured, agree ? 0.0 : 1.0};
    }
    return {Scored::Kind::other, made, measured, relative(*made, *measured)};
  }
  const auto known = metrics().find(metric);
  const bool of_plans = metric == "plan_rank" || metric == "runs";
  require(known != metrics().end() || of_plans, ErrorCode::usage,
          "'{}' is not predicted: it is neither time, memory nor a plan", metric);
  require(measured.has_value(), ErrorCode::usage, "the row has no value");
  if (metric != "max_image_side") require_size(run);
  if (metric == "plan_rank") return rank_of(runs, run, row, *measured);
  if (metric == "runs") {
    const double ran = can_run(runs, run) ? 1 : 0;
    return {Scored::Kind::other, ran, measured, ran == *measured ? 0.0 : 1.0};
  }
  const double made = known->second.number(runs, run, row);
  return {known->second.kind, made, measured, relative(made, *measured)};
}

namespace {

// A side of an ordering, as a run at a single size.
double side_of(PublishedRuns& runs, PublishedCase run, const Json& side, bool memory) {
  const std::string method = text(side, "method");
  run.ranks = side.value("world", 1);
  if (side.contains("compile")) run.compiled = side.at("compile").get<bool>();
  if (method.starts_with("best") || method.starts_with("any hybrid")) return best(runs, run);
  static const std::set<std::string> single{"tensor", "ulysses", "ring", "distrifusion",
                                            "pipefusion"};
  require(single.contains(method), ErrorCode::usage, "the method '{}' is not predicted", method);
  run = with(run, {{method, run.ranks}});
  return memory ? double(runs.rank_bytes(run)) : runs.seconds(run);
}

std::vector<Json> sides_of(const Json& side) {
  return side.is_array() ? side.get<std::vector<Json>>() : std::vector<Json>{side};
}

}  // namespace

Ordered ordered(PublishedRuns& runs, const Json& row) {
  const std::string quantity = text(row, "quantity"), relation = text(row, "relation");
  const bool memory = quantity == "peak memory";
  require(quantity == "latency" || memory, ErrorCode::usage, "'{}' is not predicted", quantity);
  PublishedCase run;
  run.model = text(row, "model");
  require_size(run);
  run.hardware = text(row, "hardware").empty() ? "A100" : text(row, "hardware");
  const auto sizes = row.find("side_px");
  run.width = run.height = sizes != row.end() && sizes->is_array() && !sizes->empty()
                               ? (*sizes)[0].get<int64_t>()
                               : 1024;
  Ordered made{true, 0, 0};
  for (const Json& left : sides_of(row.at("left")))
    for (const Json& right : sides_of(row.at("right"))) {
      made.left = side_of(runs, run, left, memory);
      made.right_side = side_of(runs, run, right, memory);
      const double ratio = made.left / made.right_side;
      bool holds = false;
      if (relation.starts_with('~'))
        holds = ratio > 0.85 && ratio < 1.18;
      else if (relation.starts_with(">>"))
        holds = ratio >= 1.3;
      else if (relation.starts_with(">="))
        holds = ratio >= 0.98;
      else if (relation.starts_with('>'))
        holds = ratio > 1;
      else if (relation.starts_with('<'))
        holds = ratio < 1;
      else
        fail(ErrorCode::usage, "the relation '{}' is not predicted", relation);
      if (!holds) {
        made.right = false;
        return made;
      }
    }
  return made;
}

}  // namespace tessera::planner
