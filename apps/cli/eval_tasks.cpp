#include <cstdio>
#include <utility>

#include "arguments.h"
#include "commands.h"
#include "field_options.h"
#include "inputs.h"

namespace tessera::cli {
namespace {

struct Options {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  TaskRequest request;
  std::string score = "exact";
  double tune = -1;
  bool json = false;
};

void print_row(const TaskQuality& q) {
  std::printf(
      "%-28s %6.2f [%5.1f, %5.1f]  %4ld  %4ld  %6.4f  %6.2f %5.1f %%  %6.2f  %5.1f %%  %6.2f  "
      "%8.3f  %7.2f\n",
      q.select.c_str(), 100 * q.accuracy, 100 * q.accuracy_low, 100 * q.accuracy_high,
      static_cast<long>(q.lost), static_cast<long>(q.gained), q.p, q.experts, 100 * q.experts_share,
      q.batch_experts, 100 * q.ruled, q.passes, q.bytes / 1e6, q.milliseconds);
  if (q.ruled < 0.9 && q.select != "vanilla")
    std::printf(
        "  only %.1f %% of the tokens were decided under the rule: this says little of it\n",
        100 * q.ruled);
  if (q.tasks.size() < 2) return;
  std::printf(" ");
  for (const auto& [task, accuracy] : q.tasks)
    std::printf(" %s %.1f", task.c_str(), 100 * accuracy);
  std::printf("\n");
}

void eval_tasks(Options& o, const std::stop_token& stop) {
  o.request.number = o.score == "number";
  if (o.tune >= 0) o.request.tune = o.tune;
  read_examples(o.request.data, stop);
  bool has_heading = o.json;
  const auto tuned = evaluate_tasks(
      o.model->model, run_options(*o.model), o.request,
      [&](const TaskQuality& q) {
        if (!std::exchange(has_heading, true))
          std::printf(
              "%-28s %-22s lost  gained  p     experts         batch   ruled    passes  %-8s  ms\n",
              "rule", "correct %", "MB");
        if (o.json)
          std::printf("%s\n", to_json(q).c_str());
        else
          print_row(q);
        flush_results();
      },
      stop);
  if (o.tune < 0) return;
  if (!o.json)
    std::printf("Fewest experts that lose at most %.2f %% on one half; of the other half:\n",
                100 * o.tune);
  for (const TaskQuality& q : tuned)
    if (o.json)
      std::printf("{\"tuned\": %s}\n", to_json(q).c_str());
    else
      std::printf("  %-28s %6.2f experts (%.1f %%), %.2f %% correct [%.1f, %.1f], p %.4f\n",
                  q.select.c_str(), q.experts, 100 * q.experts_share, 100 * q.accuracy,
                  100 * q.accuracy_low, 100 * q.accuracy_high, q.p);
}

}  // namespace

void read_examples(TaskSource& data, const std::stop_token& stop) {
  if (data.name != "-") return;
  data.text = read_input("-", "--data", stop);
  data.name = "standard input";
}

void add_example_options(CLI::App& eval, const char* group, const ExampleOptions& o,
                         const char* limit) {
  eval.add_option("--data", o.data.name, "JSON lines, '-': stdin (default: the model's tasks)")
      ->group(group)
      ->type_name("F");
  eval.add_option("--max-tokens", o.max_tokens, "Tokens of an answer (default: the model's)")
      ->check(whole(1, kMostTokens))
      ->group(group)
      ->type_name("N");
  eval.add_option("--limit", o.limit, limit)
      ->check(whole(1, 1 << 30))
      ->group(group)
      ->type_name("N");
}

Command add_eval_tasks(CLI::App& eval) {
  CLI::App* app =
      eval.add_subcommand("tasks", "Accuracy of expert sharing on tasks with an answer");
  auto o = std::make_shared<Options>();
  TaskRequest& r = o->request;
  add_model(*app, o->model);
  const char* group = "Measurement";
  app->add_option("--select", r.selects, "Rules beside vanilla, e.g. des-vote:0.4 des-max:0.25")
      ->group(group)
      ->type_name("R ...");
  add_fields(*app, r.complete, group,
             [](const Field& field) { return std::string(field.name).starts_with("select_"); });
  app->add_option("--select-tune", o->tune, "Find the fewest experts that lose at most E")
      ->check(within(0.0, 1.0))
      ->group(group)
      ->type_name("E");
  app->add_option("--score", o->score, "Score: exact (default), or number, the last one")
      ->check(one_of({"exact", "number"}))
      ->group(group)
      ->type_name("S");
  add_example_options(*app, group, {r.data, r.max_tokens, r.limit},
                      "Examples to run (default: all)");
  app->add_option("--batch", r.batch, "Examples of a batch (default 16)")
      ->check(whole(1, 100000))
      ->group(group)
      ->type_name("N");
  add_fields(*app, r.complete, group,
             [](const Field& field) { return field.name == std::string("raw"); });
  app->add_flag("--json", o->json, "Print JSON lines")->group(group);
  add_decoding_options(*app, r.complete);
  add_model_options(*app, o->model);
  add_memory_budget(*app, o->model, "Memory limit, e.g. 4GB (default: the machine's)");
  return {app, [o](const std::stop_token& stop) { eval_tasks(*o, stop); }};
}

}  // namespace tessera::cli
