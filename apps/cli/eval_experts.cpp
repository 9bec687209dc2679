#include <cstdio>

#include "commands.h"

namespace tessera::cli {
namespace {

struct Options {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  ExpertsRequest request;
  bool json = false;
};

void eval_experts(Options& o, const std::stop_token& stop) {
  read_examples(o.request.data, stop);
  const ExpertStudy study = study_experts(o.model->model, run_options(*o.model), o.request, stop);
  if (o.json) {
    std::printf("%s\n", to_json(study).c_str());
    return;
  }
  std::printf("layer  tokens  distinct  independent\n");
  for (const UniqueExperts& u : study.unique)
    std::printf("%5d  %6ld  %8.2f  %11.2f\n", u.layer, static_cast<long>(u.tokens), u.distinct,
                u.independent);
  std::printf("\nlayer  cosine of hits from pass to pass\n");
  for (const HitLikeness& l : study.likeness) std::printf("%5d  %6.3f\n", l.layer, l.cosine);
  std::printf("\n%.1f %% of the tokens were decided in the passes that were looked into\n%s",
              100 * study.decided,
              study.decided < 0.9 ? "below 90 %: this says little of the answers\n" : "");
  std::printf(
      "\n%-20s layer    size   recall  fixed random  residual  fixed random    hits  fixed "
      "random\n",
      "rule");
  for (const CoresetQuality& c : study.coresets)
    std::printf(
        "%-20s %5d  %6.2f    %5.3f  %5.3f  %5.3f     %5.3f  %5.3f  %5.3f   %5.3f  %5.3f  "
        "%5.3f\n",
        c.select.c_str(), c.layer, c.size, c.rule.recall, c.fixed.recall, c.random.recall,
        c.rule.residual, c.fixed.residual, c.random.residual, c.rule.hits, c.fixed.hits,
        c.random.hits);
  std::printf("\na layer's experts: %.3g us an assignment + %.3g us a distinct expert (R2 %.3f)\n",
              1e6 * study.per_assignment, 1e6 * study.per_expert, study.explained);
}

}  // namespace

Command add_eval_experts(CLI::App& eval) {
  CLI::App* app =
      eval.add_subcommand("experts", "Experts of blocks, and what coresets keep of them");
  auto o = std::make_shared<Options>();
  ExpertsRequest& r = o->request;
  add_model(*app, o->model);
  const char* group = "Measurement";
  app->add_option("--select", r.selects, "Rules with a coreset, e.g. des-vote:0.4 des-max:0.25")
      ->group(group)
      ->type_name("R ...");
  add_example_options(*app, group, {r.data, r.max_tokens, r.limit}, "Examples to run (default 24)");
  app->add_flag("--json", o->json, "Print the result as JSON")->group(group);
  add_decoding_options(*app, r.complete);
  add_model_options(*app, o->model);
  return {app, [o](const std::stop_token& stop) { eval_experts(*o, stop); }};
}

}  // namespace tessera::cli
