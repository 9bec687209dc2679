#include <cstdio>
#include <utility>

#include "arguments.h"
#include "commands.h"

namespace tessera::cli {
namespace {

struct Options {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  std::vector<std::string> plans;
  EvalRequest request;
  bool json = false;
};

void print_json(const PlanQuality& q) {
  std::printf(
      "{\"plan\": \"%s\", \"images\": %d, \"latent_error\": %.6g, \"latent_error_95\": %.3g, "
      "\"psnr\": %.4g, \"psnr_95\": %.3g, \"recognised\": %.6g, "
      "\"recognised_change\": %.5g, \"recognised_change_95\": %.3g, \"assignments\": %ld, "
      "\"assignments_share\": "
      "%.5g, \"frechet\": %.5g, \"spatial_frechet\": %.5g, \"inception_score\": %.5g, "
      "\"precision\": %.4g, \"recall\": %.4g, \"peak_bytes\": %ld, \"seconds\": %.4g}\n",
      q.plan.c_str(), q.images, q.latent_error, q.latent_error_half, q.psnr, q.psnr_half,
      q.recognised, q.recognised_change, q.recognised_change_half, static_cast<long>(q.assignments),
      q.assignments_share, q.frechet, q.spatial_frechet, q.inception_score, q.precision, q.recall,
      static_cast<long>(q.peak_bytes), q.seconds);
}

void print_row(const PlanQuality& q) {
  const std::string plan = q.plan.empty() ? "synchronous" : q.plan;
  std::printf("%-52s %8.4f +- %.4f  %6.2f +- %5.2f dB", plan.c_str(), q.latent_error,
              q.latent_error_half, q.psnr, q.psnr_half);
  if (q.recognised >= 0)
    std::printf("  %6.2f %%, %+6.2f +- %5.2f", 100 * q.recognised, 100 * q.recognised_change,
                100 * q.recognised_change_half);
  std::printf("  %5.1f %% assignments\n", 100 * q.assignments_share);
  if (q.frechet >= 0)
    std::printf("  FID %.3f, sFID %.3f, inception score %.2f, precision %.3f, recall %.3f\n",
                q.frechet, q.spatial_frechet, q.inception_score, q.precision, q.recall);
}

void eval(Options& o, const std::stop_token& stop) {
  if (o.model->model.empty()) throw Error(ErrorCode::usage, "eval: MODEL is required");
  for (const std::string& text : o.plans) o.request.plans.push_back(parse_plan(text));
  if (!o.model->plan.empty()) o.request.plans.push_back(parse_plan(o.model->plan));
  o.model->plan.clear();
  bool has_heading = o.json;  // no heading before an error
  evaluate(
      o.model->model, run_options(*o.model), o.request,
      [&](const PlanQuality& q) {
        if (!std::exchange(has_heading, true))
          std::printf("%-52s latent error        PSNR                 recognised, change\n",
                      "plan");
        if (o.json)
          print_json(q);
        else
          print_row(q);
        flush_results();
      },
      stop);
}

}  // namespace

Command add_eval(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("eval", "Measure quality: plans, expert sharing, captions");
  auto o = std::make_shared<Options>();
  o->request.generate.steps = 20;
  add_model(*app, o->model);
  app->get_option("MODEL")->required(false);  // optional before `speed` or `tasks`
  const Command inner[] = {add_eval_speed(*app), add_eval_tasks(*app), add_eval_experts(*app)};
  const char* group = "Measurement";
  app->add_option("--plans", o->plans, "Plans to compare, separated by spaces")
      ->group(group)
      ->type_name("P ...");
  app->add_option("--images", o->request.images, "Images of each plan (default 320)")
      ->check(whole(1, 1000000))
      ->group(group)
      ->type_name("N");
  app->add_option("--batch", o->request.batch, "Images of a batch (default 32)")
      ->check(whole(1, 100000))
      ->group(group)
      ->type_name("N");
  app->add_option("--steps", o->request.generate.steps, "Denoising steps (default 20)")
      ->check(positive())
      ->group(group)
      ->type_name("N");
  app->add_option("--guidance", o->request.generate.guidance,
                  "Guidance scale (default: the model's)")
      ->group(group)
      ->type_name("G");
  app->add_option("--seed", o->request.generate.seed, "First seed (default 0)")
      ->check(seed())
      ->group(group)
      ->type_name("N");
  app->add_flag("--json", o->json, "Print JSON lines")->group(group);
  add_model_options(*app, o->model);
  return {app,
          [o, speed = inner[0], tasks = inner[1], experts = inner[2]](const std::stop_token& stop) {
            for (const Command& command : {speed, tasks, experts})
              if (command.app->parsed()) return command.run(stop);
            eval(*o, stop);
          }};
}

}  // namespace tessera::cli
