#include <cstdio>
#include <utility>

#include "arguments.h"
#include "commands.h"

namespace tessera::cli {
namespace {

struct Options {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::vector<std::string> plans;
  SpeedRequest request;
  bool json = false;
};

void print(const PlanSpeed& s, bool json) {
  if (json)
    std::printf(
        "{\"plan\": \"%s\", \"batch\": %d, \"seconds\": %.5g, \"images_per_second\": %.5g, "
        "\"peak_bytes\": %ld}\n",
        s.plan.c_str(), s.batch, s.seconds, s.images_per_second, static_cast<long>(s.peak_bytes));
  else
    std::printf("%5d  %-48s %9.3f  %10.2f  %8.1f\n", s.batch,
                s.plan.empty() ? "synchronous" : s.plan.c_str(), s.seconds, s.images_per_second,
                static_cast<double>(s.peak_bytes) / 1e6);
}

void eval_speed(Options& o, const std::stop_token& stop) {
  for (const std::string& text : o.plans) o.request.plans.push_back(parse_plan(text));
  if (!o.model->plan.empty()) o.request.plans.push_back(parse_plan(o.model->plan));
  o.model->plan.clear();
  bool has_heading = o.json;
  measure_speed(
      o.model->model, run_options(*o.model), o.request,
      [&](const PlanSpeed& s) {
        if (!std::exchange(has_heading, true))
          std::printf("%5s  %-48s %9s  %10s  %8s\n", "batch", "plan", "seconds", "images/s",
                      "peak MB");
        print(s, o.json);
        flush_results();
      },
      stop);
}

}  // namespace

Command add_eval_speed(CLI::App& eval) {
  CLI::App* app = eval.add_subcommand("speed", "Time, throughput and memory over batch sizes");
  auto o = std::make_shared<Options>();
  SpeedRequest& r = o->request;
  r.generate.steps = 20;
  add_model(*app, o->model);
  const char* group = "Measurement";
  app->add_option("--plans", o->plans, "Plans to compare, separated by spaces")
      ->group(group)
      ->type_name("P ...");
  app->add_option("--batches", r.batches, "Images of a batch (default 1,2,4,8,16,32)")
      ->delimiter(',')
      ->check(whole(1, 100000))
      ->group(group)
      ->type_name("N,...");
  app->add_option("--rounds", r.rounds, "Runs of each plan; the median counts (default 3)")
      ->check(whole(1, 10000))
      ->group(group)
      ->type_name("N");
  app->add_option("--steps", r.generate.steps, "Denoising steps (default 20)")
      ->check(positive())
      ->group(group)
      ->type_name("N");
  app->add_option("--guidance", r.generate.guidance, "Guidance scale (default: the model's)")
      ->group(group)
      ->type_name("G");
  app->add_flag("--json", o->json, "Print JSON lines")->group(group);
  add_model_options(*app, o->model);
  return {app, [o](const std::stop_token& stop) { eval_speed(*o, stop); }};
}

}  // namespace tessera::cli
