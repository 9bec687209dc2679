#include <algorithm>
#include <charconv>
#include <cstdio>

#include "arguments.h"
#include "block_view.h"
#include "commands.h"
#include "field_options.h"
#include "inputs.h"
#include "outputs.h"
#include "progress.h"

namespace tessera::cli {
namespace {

struct Options {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  CompleteRequest request;
  std::vector<std::string> ids;
  std::string chat, prompt_file, report, timeline;
  bool json = false, visualise = false, overwrite = false;
};

std::vector<int32_t> parse_ids(const std::string& text) {
  if (text.empty())
    throw Error(ErrorCode::usage, "--prompt-ids '': an empty prompt asks for nothing; give ids");
  std::vector<int32_t> ids;
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    int32_t id = 0;
    const auto [next, error] = std::from_chars(at, end, id);
    if (error != std::errc() || (next < end && *next != ','))
      throw Error(ErrorCode::usage,
                  "--prompt-ids '" + text.substr(0, 60) + "': expected numbers joined by commas");
    ids.push_back(id);
    at = next < end ? next + 1 : end;
  }
  return ids;
}

std::string read_chat(const std::string& path, const std::stop_token& stop) {
  std::string text = read_input(path, "--chat", stop);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    throw Error(ErrorCode::usage,
                "--chat: " + (path == "-" ? "standard input" : "'" + path + "'") +
                    " holds nothing; expected [{\"role\": \"user\", \"content\": \"...\"}, ...]");
  return text;
}

// Reads prompts as texts, ids or a chat, before a model is opened.
size_t read_prompts(Options& o, const std::stop_token& stop) {
  CompleteRequest& q = o.request;
  for (const std::string& ids : o.ids) q.prompt_ids.push_back(parse_ids(ids));
  const auto typed = std::count(q.prompts.begin(), q.prompts.end(), "-");
  if (typed + (o.chat == "-") + (o.prompt_file == "-") > 1)
    throw Error(ErrorCode::usage, "standard input can be read once: give '-' to one option only");
  if (!o.chat.empty()) q.chat = read_chat(o.chat, stop);
  for (std::string& prompt : q.prompts) prompt = read_text(prompt, "--prompt", stop);
  if (!o.prompt_file.empty())
    for (const std::string& line : read_lines(o.prompt_file, "--prompt-file", stop))
      q.prompts.push_back(line);
  return q.prompts.size() + q.prompt_ids.size() + (q.chat.empty() ? 0 : 1);
}

// Prints texts, or ids without a tokenizer, with a heading line if there are several.
void print_answers(const CompleteResult& result) {
  for (size_t i = 0; i < result.completions.size(); ++i) {
    const Completion& c = result.completions[i];
    std::string line = c.text;
    if (!result.has_texts)
      for (int32_t id : c.ids) line += (line.empty() ? "" : ",") + std::to_string(id);
    std::printf("%s%s\n", i == 0 ? "" : "---\n", line.c_str());
  }
}

void complete(Options& o, const std::stop_token& stop, const Processes* processes) {
  const RunOptions run = run_options(*o.model, processes);
  const bool first = !processes || processes->rank() == 0;
  if (first)
    check_files({o.model->model,
                 {{"--prompt-file", o.prompt_file}, {"--chat", o.chat}},
                 {{"--report", o.report, FileKind::report},
                  {"--timeline", o.timeline, FileKind::plan_costs}},
                 o.overwrite,
                 o.model->files});
  const size_t prompts = read_prompts(o, stop);
  if (first && o.request.logprobs && !o.json && o.report.empty())
    print_note("--logprobs has no effect: they are part of --json and --report");
  const TimelineFile timeline(o.timeline, processes);
  Model model = Model::open(o.model->model, run, stop, o.model->files);
  const size_t answers = prompts * static_cast<size_t>(o.request.n);
  const bool stream = !o.json && answers == 1 && !o.visualise;
  BlockView view(answers);
  CompleteControl control{stop, {}, {}};
  control.on_progress = [&](const CompleteProgress& p) {
    if (o.visualise) view.show(p);
    if (!stream || p.text.empty()) return;
    std::fwrite(p.text.data(), 1, p.text.size(), stdout);
    flush_results();
  };
  if (first) control.on_note = print_note;
  const CompleteResult result = model.complete(o.request, control);
  if (result.elsewhere) return;
  if (!o.report.empty()) save_text(to_json(result) + "\n", o.report);
  timeline.save();
  if (o.json)
    std::printf("%s\n", to_json(result).c_str());
  else if (stream && result.has_texts)
    std::printf("\n");
  else
    print_answers(result);
}

// Common options, shown first by --help.
void add_common(CLI::App& app, const std::shared_ptr<Options>& o) {
  CompleteRequest& q = o->request;
  const char* group = "Common";
  add_text(app, "--prompt", q.prompts, "Prompt, repeatable; '-' reads standard input")
      ->group(group);
  app.add_option("--chat", o->chat, "Chat as JSON, a file or '-', instead of a prompt")
      ->group(group)
      ->type_name("F");
  add_fields(app, q, group);
  app.add_flag("--json", o->json, "Print ids, confidences, times and experts as JSON")
      ->group(group);
  add_fields(app, q, "Sampling");
}

void add_files(CLI::App& app, const std::shared_ptr<Options>& o) {
  CompleteRequest& q = o->request;
  const auto option = [&](const char* name, auto& value, const char* type, const char* text) {
    return app.add_option(name, value, text)->group(kFiles)->type_name(type);
  };
  option("--prompt-file", o->prompt_file, "F", "File with a prompt in each line; '-': stdin");
  option("--prompt-ids", o->ids, "IDS", "Prompt as token ids joined by commas, repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_text(app, "--stop", q.stop, "Text that ends an answer, repeatable")->group(kFiles);
  add_fields(app, q, kFiles);
  option("--report", o->report, "F", "Write time, work and memory as JSON");
  option("--timeline", o->timeline, "F", "Write what ranks did when: Chrome trace, or .svg");
  app.add_flag("--overwrite", o->overwrite, "Replace files that Tessera did not write")
      ->group(kFiles);
  app.add_flag("--visualise", o->visualise, "Show blocks on stderr as they fill in")->group(kFiles);
}

}  // namespace

void add_decoding_options(CLI::App& app, CompleteRequest& q) {
  add_fields(app, q, kDecoding);
  app.add_option_function<double>(
         "--threshold", [&q](const double& t) { q.decode = "threshold:" + std::to_string(t); },
         "Commit tokens above confidence T (default 0.9)")
      ->group(kDecoding)
      ->type_name("T")
      ->excludes("--decode");
  app.add_option("--draws", q.draws, "Stored draws of DiffusionGemma (safetensors)")
      ->group(kDecoding)
      ->type_name("F");
}

Command add_complete(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("complete", "Complete text with a diffusion language model");
  auto o = std::make_shared<Options>();
  app->add_option("MODEL", o->model->model, "Folder, hub id, or shipped: tasks-a, -b, -c")
      ->required();
  add_common(*app, o);
  add_fields(*app, o->request, "Answers", "Sampling");
  add_files(*app, o);
  add_decoding_options(*app, o->request);
  add_fields(*app, o->request, "Expert sharing", kDecoding);
  add_transformer_file(*app, o->model);
  add_model_options(*app, o->model);
  add_memory_budget(*app, o->model, "Memory limit, e.g. 4GB (default: the machine's)");
  return {app,
          [o](const std::stop_token& stop) {
            run_ranks(*o->model,
                      [&](const Processes* processes) { complete(*o, stop, processes); });
          },
          true};
}

}  // namespace tessera::cli
