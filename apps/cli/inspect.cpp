#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "arguments.h"
#include "commands.h"
#include "progress.h"
#include "server/option_names.h"
#include "tessera/prediction.h"

namespace tessera::cli {
namespace {

struct Options {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  GenerateRequest request;
  std::vector<std::string> images;
  bool json = false;
};

std::string amount(double bytes) {
  char text[32];
  if (bytes >= 1e9)
    std::snprintf(text, sizeof text, "%.2f GB", bytes / 1e9);
  else
    std::snprintf(text, sizeof text, "%.1f MB", bytes / 1e6);
  return text;
}

std::string number_of(size_t first, size_t last) {
  return first == last ? std::to_string(first) : std::to_string(first) + "-" + std::to_string(last);
}

// Adjacent ranks with equal needs share a line.
void print_ranks(const Inspection& i) {
  std::printf("\nEach rank under %s\n", i.plan.empty() ? "the budget" : i.plan.c_str());
  const bool bands = std::any_of(i.ranks.begin(), i.ranks.end(),
                                 [](const Inspection::Rank& rank) { return rank.decode > 0; });
  const bool texts = std::any_of(i.ranks.begin(), i.ranks.end(),
                                 [](const Inspection::Rank& rank) { return rank.text > 0; });
  std::printf("  %-9s %7s %8s %11s %11s %11s %11s %11s %11s%s%s\n", "ranks", "experts", "tokens",
              "weights", "activations", "K/V", "buffers", "all at once", "sent a step",
              bands ? "   to decode" : "", texts ? "   to encode" : "");
  for (size_t first = 0, last = 0; first < i.ranks.size(); first = ++last) {
    const Inspection::Rank& r = i.ranks[first];
    while (last + 1 < i.ranks.size() && i.ranks[last + 1] == r) ++last;
    std::printf("  %-9s %7d %8ld", number_of(first, last).c_str(), r.experts,
                static_cast<long>(r.tokens));
    for (int64_t bytes : {r.weights, r.activations, r.kv, r.buffers, r.total, r.sent})
      std::printf(" %11s", amount(double(bytes)).c_str());
    if (bands) std::printf(" %11s", amount(double(r.decode)).c_str());
    if (texts) std::printf(" %11s", amount(double(r.text)).c_str());
    std::printf("\n");
  }
}

void print(const Inspection& i) {
  std::printf("%s  (%s)\n\nParts\n", i.model.c_str(), i.pipeline.c_str());
  int name_width = 12, type_width = 16;
  for (const Component& c : i.components) {
    name_width = std::max(name_width, static_cast<int>(c.name.size()));
    type_width = std::max(type_width, static_cast<int>(c.type.size()));
  }
  for (const Component& c : i.components) {
    std::printf("  %-*s %-*s", name_width, c.name.c_str(), type_width, c.type.c_str());
    if (c.parameters > 0) std::printf(" %10.2f M parameters", double(c.parameters) / 1e6);
    if (c.file_bytes > 0)
      std::printf("  %s %s", amount(double(c.file_bytes)).c_str(),
                  c.downloaded ? "on disk" : "to download");
    if (!c.downloaded) std::printf("  weights are not here yet");
    std::printf("\n");
    for (const auto& [name, value] : c.facts)
      std::printf("      %-28s %s\n", name.c_str(), value.c_str());
  }
  if (!i.class_names.empty()) {
    std::printf("\nClasses\n ");
    for (size_t n = 0; n < i.class_names.size(); ++n)
      std::printf(" %s%s", i.class_names[n].c_str(),
                  n + 1 == i.class_names.size() ? ""
                  : n % 6 == 5                  ? ",\n "
                                                : ",");
    std::printf("\n");
  }
  if (i.memory.empty()) return;
  const std::string device_note = i.device == "cpu" ? "" : " on " + i.device;
  const bool text = i.answer_tokens > 0;
  const std::string prompt =
      i.prompt_tokens > 0 ? ", texts of " + std::to_string(i.prompt_tokens) + " tokens" : "";
  if (text)
    std::printf("\nA run of %ld tokens behind a prompt of %ld, in blocks of %ld%s\n",
                static_cast<long>(i.answer_tokens), static_cast<long>(i.prompt_tokens),
                static_cast<long>(i.block), device_note.c_str());
  else
    std::printf("\nA run of %ld x %ld pixels, %ld sequences in a step%s%s\n",
                static_cast<long>(i.width), static_cast<long>(i.height),
                static_cast<long>(i.sequences), prompt.c_str(), device_note.c_str());
  std::printf("  %-12s %.2f GFLOP a %s\n", "work", i.flops_per_step / 1e9,
              text ? "pass over all of it" : "step");
  if (text) std::printf("  %-12s %s\n", "K/V", amount(double(i.memory.at("kv"))).c_str());
  if (!i.expected.empty()) std::printf("  %-12s %s\n", "time", i.expected.c_str());
  for (const char* name : {"weights", "activations", "text", "peak", "process"})
    if (i.memory.contains(name))
      std::printf("  %-12s %s\n", name, amount(double(i.memory.at(name))).c_str());
  if (!i.ranks.empty()) print_ranks(i);
  if (!i.unfit.empty()) std::printf("  does not fit: %s\n", server::in_options(i.unfit).c_str());
}

// Under mpirun, rank 0 predicts the run of all processes.
void inspect(Options& o, const std::stop_token& stop, const Processes* processes) {
  const RunOptions run = run_options(*o.model, processes);
  for (const std::string& image : o.images) o.request.images.push_back({.file = image});
  std::error_code ignored;
  const bool by_name =
      is_known_model_size(o.model->model) && !std::filesystem::exists(o.model->model, ignored);
  if (processes && processes->rank() > 0) {
    if (!by_name) Model::open(o.model->model, run, stop, o.model->files);  // all ranks do, or none
    return;
  }
  const Inspection inspection =
      by_name ? inspect_by_name(o.model->model, run, o.request, stop)
              : Model::open(o.model->model, run, stop, o.model->files).inspect(o.request, stop);
  if (o.json)
    std::printf("%s\n", to_json(inspection).c_str());
  else
    print(inspection);
  if (!o.json)
    for (const std::string& note : inspection.notes) print_note(note);
}

}  // namespace

Command add_inspect(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("inspect", "Show parts, sizes, and memory and time of a run");
  auto o = std::make_shared<Options>();
  app->add_option("MODEL", o->model->model, "Folder, hub id, shipped or published model")
      ->required();
  const char* group = "Run to estimate";
  app->add_option("--width", o->request.width, "Size in pixels (default: as trained)")
      ->check(positive())
      ->group(group)
      ->type_name("W");
  app->add_option("--height", o->request.height)->check(positive())->group(group)->type_name("H");
  app->add_option("--count", o->request.count, "Samples in the run (default 1)")
      ->group(group)
      ->type_name("N");
  app->add_option("--steps", o->request.steps, "Denoising steps (default: the model's)")
      ->check(positive())
      ->group(group)
      ->type_name("N");
  app->add_option("--guidance", o->request.guidance,
                  "Guidance scale, 1 for none (default: the model's)")
      ->group(group)
      ->type_name("G");
  add_text(*app, "--image", o->images, "Reference image, of models that take them")
      ->group(group)
      ->type_name("F");
  app->add_option("--embeddings", o->request.embeddings,
                  "Text embeddings (default: the longest texts)")
      ->group(group)
      ->type_name("FILE");
  app->add_option("--text-tokens", o->request.text_tokens,
                  "Tokens that T5 reads (default: the model's)")
      ->check(positive())
      ->group(group)
      ->type_name("N");
  add_memory_budget(*app, o->model, "Memory limit, e.g. 4GB (default: the machine's)", group);
  app->add_flag("--json", o->json, "Print the result as JSON")->group(group);
  add_weight_files(*app, o->model);
  add_model_options(*app, o->model);
  return {app,
          [o](const std::stop_token& stop) {
            run_ranks(*o->model, [&](const Processes* processes) { inspect(*o, stop, processes); });
          },
          true};
}

}  // namespace tessera::cli
