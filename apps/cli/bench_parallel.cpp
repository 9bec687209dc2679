#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "arguments.h"
#include "bench.h"
#include "progress.h"
#include "tessera/field_names.h"
#include "tessera/plan_costs.h"

namespace tessera::cli {
namespace {

struct Options {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::string size, json;
  PlanCostsRequest request;
  bool overwrite = false;
};

// Parses "512" or "768x512".
void set_size(const std::string& text, GenerateRequest& request) {
  const char *at = text.data(), *const end = at + text.size();
  const auto [middle, error] = std::from_chars(at, end, request.width);
  auto [last, wrong] = std::pair(middle, error);
  request.height = request.width;
  if (error == std::errc() && middle != end && *middle == 'x') {
    const auto second = std::from_chars(middle + 1, end, request.height);
    last = second.ptr, wrong = second.ec;
  }
  if (wrong != std::errc() || last != end || request.width < 1 || request.height < 1)
    throw Error(ErrorCode::usage,
                "--size " + text + ": expected pixels, a side or WxH: 512 or 768x512");
}

/// Prints a status line on standard error: updated in place on a terminal, else repeated now and
/// then.
class Announcer {
 public:
  ~Announcer() {
    if (line_open_) std::fputs("\r\033[K", stderr);
  }
  void say(const std::string& label, int done, int total) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::milliseconds(terminal_ ? 100 : 5000);
    line_open_ = terminal_;
    std::fprintf(stderr, terminal_ ? "\r\033[K%s %d of %d" : "%s %d of %d\n", label.c_str(), done,
                 total);
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  bool line_open_ = false;
  std::chrono::steady_clock::time_point next_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(1);
};

void print(const PlanCosts& costs, int ranks) {
  size_t width = 4;
  for (const PlanCost& cost : costs.plans) width = std::max(width, cost.plan.size());
  const int column = static_cast<int>(width);
  std::printf("%-*s  %9s  %9s  %9s  %9s\n", column, "plan", "s a step", "MB sent", "messages",
              "MB a rank");
  int untimed = 0;
  for (const PlanCost& cost : costs.plans) {
    char seconds[32] = "-";
    if (cost.seconds >= 0) std::snprintf(seconds, sizeof seconds, "%.4g", cost.seconds);
    untimed += cost.seconds < 0;
    std::printf("%-*s  %9s  %9.4g  %9lld  %9.4g\n", column,
                cost.plan.empty() ? "one rank" : cost.plan.c_str(), seconds,
                static_cast<double>(cost.bytes) / 1e6, static_cast<long long>(cost.messages),
                static_cast<double>(cost.rank_bytes) / 1e6);
  }
  std::printf(
      "%zu plan%s for %d rank%s, %d not measured; left out: %d that cannot run this, %d that do "
      "not fit into memory",
      costs.plans.size(), costs.plans.size() == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s", untimed,
      costs.refused, costs.too_large);
  if (costs.untried > 0) std::printf(", %d not tried (see --plans)", costs.untried);
  std::printf("\n");
}

void bench_parallel(Options& o, const std::stop_token& stop, const Processes* processes) {
  const bool first = !processes || processes->rank() == 0;
  ModelOptions usual = *o.model;
  if (processes && usual.ranks != 0 && usual.ranks != processes->ranks())
    throw Error(ErrorCode::usage, "--ranks " + std::to_string(usual.ranks) + ": mpirun started " +
                                      std::to_string(processes->ranks()) +
                                      " processes; leave it out");
  o.request.ranks = processes ? processes->ranks() : usual.ranks == 0 ? 2 : usual.ranks;
  if (!usual.plan.empty())
    throw Error(ErrorCode::usage, "bench parallel compares all plans; leave out --plan");
  usual.ranks = 0;
  RunOptions run = run_options(usual);
  run.processes = processes;
  if (!o.size.empty()) set_size(o.size, o.request.generate);
  if (first)
    check_files({o.model->model,
                 {{"--embeddings", o.request.generate.embeddings}},
                 {{"--json", o.json, FileKind::plan_costs}},
                 o.overwrite});
  PlanCosts costs;
  {
    Announcer announcer;
    try {
      costs = compare_plans(
          o.model->model, run, o.request,
          [&](const std::string& label, int done, int total) {
            if (first) announcer.say(label, done, total);
          },
          stop);
    } catch (const Error& e) {  // the library has no --size
      if (!o.size.empty() && (e.field() == "width" || e.field() == "height"))
        throw Error(e.code(), "--size " + o.size + ": " + plain_fields(e.what()));
      throw;
    }
  }
  if (first) {
    print(costs, o.request.ranks);
    flush_results();
    std::string lines;
    for (const PlanCost& cost : costs.plans) lines += to_json(cost) + "\n";
    if (!o.json.empty()) save_text(lines, o.json);
  }
  if (costs.stopped) throw Error(ErrorCode::cancelled, "stopped before all plans were measured");
}

}  // namespace

Command add_bench_parallel(CLI::App& bench) {
  CLI::App* app = bench.add_subcommand("parallel", "All plans for --ranks N (default 2), by time");
  auto o = std::make_shared<Options>();
  GenerateRequest& generate = o->request.generate;
  generate.steps = 8;
  add_model(*app, o->model);
  const char* group = "Measurement";
  app->add_option("--size", o->size, "Size in pixels, 512 or 768x512 (default: as trained)")
      ->group(group)
      ->type_name("S");
  app->add_option("--steps", generate.steps, "Denoising steps of a run (default 8)")
      ->check(positive())
      ->group(group)
      ->type_name("N");
  app->add_option("--count", generate.count, "Images of a run (default 1)")
      ->check(whole(1, 100000))
      ->group(group)
      ->type_name("N");
  app->add_option("--guidance", generate.guidance, "Guidance scale (default: the model's)")
      ->group(group)
      ->type_name("G");
  app->add_option("--embeddings", generate.embeddings,
                  "Text embeddings, for a folder without encoders")
      ->group(group)
      ->type_name("F");
  app->add_option("--rounds", o->request.rounds, "Runs of each plan; the median counts (default 3)")
      ->check(whole(1, 10000))
      ->group(group)
      ->type_name("N");
  app->add_option("--seconds", o->request.seconds,
                  "Latest start of a run; 0: predict only (default 120)")
      ->check(within(0.0, 1e7))
      ->group(group)
      ->type_name("S");
  app->add_option("--plans", o->request.most, "Plans to predict, few axes first (default 200)")
      ->check(positive())
      ->group(group)
      ->type_name("N");
  app->add_option("--json", o->json, "Also write JSON lines to a file")
      ->group(group)
      ->type_name("F");
  app->add_flag("--overwrite", o->overwrite, "Replace a file that Tessera did not write")
      ->group(group);
  add_model_options(*app, o->model);
  add_memory_budget(*app, o->model, "Leave out plans above this memory");
  return {app, [o](const std::stop_token& stop) {
            run_ranks(*o->model,
                      [&](const Processes* processes) { bench_parallel(*o, stop, processes); });
          }};
}

}  // namespace tessera::cli
