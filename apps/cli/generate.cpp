#include <algorithm>
#include <cstdio>
#include <optional>

#include "arguments.h"
#include "commands.h"
#include "field_options.h"
#include "inputs.h"
#include "outputs.h"
#include "plan.h"
#include "progress.h"
#include "tessera/prediction.h"

namespace tessera::cli {
namespace {

struct Options {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  GenerateRequest request;
  Output output;
  std::optional<std::string> prompt;
  std::string classes, prompt_file, report, timeline;
  std::string progress = "auto", preview;
  int preview_every = 1;
  std::string tiling = "auto";
  bool latents_only = false;
  std::vector<std::string> images;
  std::string mask, margins;
};

// Splits "1,2, red circle" into {"1", "2", "red circle"}.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t from = 0; from <= text.size();) {
    const size_t comma = std::min(text.find(',', from), text.size());
    const size_t first = std::min(text.find_first_not_of(' ', from), comma);
    const size_t last = text.find_last_not_of(' ', comma - 1);
    parts.push_back(first < comma ? text.substr(first, last + 1 - first) : "");
    from = comma + 1;
  }
  return parts;
}

// Sets the subject: classes or text.
void set_subject(Options& o, const std::stop_token& stop) {
  const int ways = !o.classes.empty() + o.prompt.has_value() + !o.prompt_file.empty();
  if (ways > 1)
    throw Error(ErrorCode::usage, "give one of --class, --prompt and --prompt-file, not several");
  if (ways == 0 && o.request.embeddings.empty())
    throw Error(ErrorCode::usage, "what to make is missing: give --class C, or --prompt T");
  if (!o.classes.empty()) o.request.classes = split(o.classes);
  if (o.prompt) o.request.prompts = {read_text(*o.prompt, "--prompt", stop)};
  if (!o.prompt_file.empty()) o.request.prompts = read_lines(o.prompt_file, "--prompt-file", stop);
}

void save(const GenerateResult& result, const Options& o, const std::stop_token& stop) {
  save_output(result, o.request, o.model->model, o.output, stop);
  if (!o.request.save_latents.empty()) std::printf("%s\n", o.request.save_latents.c_str());
  if (!o.report.empty()) save_text(to_json(result.report) + "\n", o.report);
}

// The options that most requests use, shown first by --help.
void add_common(CLI::App& app, const std::shared_ptr<Options>& o) {
  GenerateRequest& q = o->request;
  const char* group = "Common";
  add_text(app, "--prompt", o->prompt, "Text of the image; '-' reads standard input")->group(group);
  app.add_option("--class", o->classes, "Class numbers or names instead; see 'inspect'")
      ->group(group)
      ->type_name("C[,C...]");
  app.add_option("-o,--output", o->output.requested_path,
                 "Image, video or folder/ (default tessera.png)")
      ->group(group)
      ->type_name("OUT");
  add_fields(app, q, group);
}

void add_source(CLI::App& app, const std::shared_ptr<Options>& o) {
  GenerateRequest& q = o->request;
  const char* group = "Image to image";
  add_text(app, "--image", o->images, "Image to start from, or reference image (repeatable)")
      ->group(group)
      ->type_name("F");
  app.add_option("--mask", o->mask, "Image that is white where to repaint (default: all)")
      ->group(group)
      ->type_name("F");
  app.add_option("--outpaint", o->margins, "Pixels to add: all sides, or left,top,right,bottom")
      ->group(group)
      ->type_name("P");
  add_fields(app, q, group);
}

void add_subject(CLI::App& app, const std::shared_ptr<Options>& o) {
  GenerateRequest& q = o->request;
  const char* group = "Prompt";
  app.add_option("--prompt-file", o->prompt_file, "File with a prompt in each line; '-': stdin")
      ->group(group)
      ->type_name("F");
  add_text(app, "--negative-prompt", q.negative_prompt,
           "Text to avoid, for all prompts (default: none)")
      ->group(group);
  app.add_option("--embeddings", q.embeddings, "Text embeddings (safetensors) instead of prompts")
      ->group(group)
      ->type_name("F");
  add_fields(app, q, group);
}

void add_files(CLI::App& app, const std::shared_ptr<Options>& o) {
  GenerateRequest& q = o->request;
  const char* files = "Files";
  app.add_option("--fps", o->output.rate, "Frames a second of .mp4 (default: the model's)")
      ->group(files)
      ->type_name("N");
  app.add_option("--initial-latents", q.initial_latents, "Start from these latents, not from noise")
      ->group(files)
      ->type_name("F");
  app.add_option("--save-latents", q.save_latents, "Write the final latents (safetensors)")
      ->group(files)
      ->type_name("F");
  app.add_flag("--latents-only", o->latents_only, "Write no image; needs --save-latents")
      ->group(files);
  app.add_option("--trace", q.trace, "Write latents and predictions of each step")
      ->group(files)
      ->type_name("F");
  app.add_option("--report", o->report, "Write time, work and memory as JSON")
      ->group(files)
      ->type_name("F");
  app.add_option("--timeline", o->timeline, "Write what ranks did when: Chrome trace, or .svg")
      ->group(files)
      ->type_name("F");
  app.add_option("--progress", o->progress, "Progress: auto (default), plain or none")
      ->check(one_of({"auto", "plain", "none"}))
      ->group(files)
      ->type_name("P");
  CLI::Option* const preview =
      app.add_option("--preview", o->preview, "Write the current step as an image or .mp4")
          ->group(files)
          ->type_name("F");
  app.add_option("--preview-every", o->preview_every, "Steps between previews (default 1)")
      ->needs(preview)
      ->check(whole(1, 1 << 20))
      ->group(files)
      ->type_name("N");
  add_fields(app, q, files);
}

void add_options(CLI::App& app, const std::shared_ptr<Options>& o) {
  add_model(app, o->model);
  add_common(app, o);
  add_subject(app, o);
  add_fields(app, o->request, "Sampling");
  add_source(app, o);
  add_loras(app, o->request.loras);
  add_fields(app, o->request, kAdapters);
  add_files(app, o);
  add_weight_files(app, o->model);
  add_model_options(app, o->model);
  add_memory_budget(app, o->model, "Memory limit, e.g. 4GB (default: the machine's)");
  app.add_option("--vae-tiling", o->tiling, "Decode in tiles: auto (default), on, off, pixels")
      ->group(kExecution)
      ->type_name("T");
  add_fields(app, o->request, kExecution);
}

// Output files of a run beside `images`, whose path may be unknown yet.
RunFiles files_of(const Options& o, const RunOutput& images) {
  const GenerateRequest& q = o.request;
  const bool video = o.preview.ends_with(".mp4");
  std::vector<RunInput> inputs{{"--prompt-file", o.prompt_file},
                               {"--embeddings", q.embeddings},
                               {"--initial-latents", q.initial_latents},
                               {"--mask", o.mask}};
  for (const std::string& image : o.images) inputs.push_back({"--image", image});
  for (const Lora& lora : q.loras) inputs.push_back({"--lora", lora.file});
  return {o.model->model,
          inputs,
          {images,
           {"--save-latents", q.save_latents, FileKind::latents},
           {"--trace", q.trace, FileKind::trace},
           {"--report", o.report, FileKind::report},
           {"--timeline", o.timeline, FileKind::plan_costs},
           {"--preview", o.preview, video ? FileKind::video : FileKind::image}},
          q.overwrite,
          o.model->files};
}

// Checks output paths before inputs are read; the number of images is not known yet.
RunOutput images_of(const Options& o) {
  if (o.latents_only) return {};
  const std::string path = o.output.requested_path.value_or("tessera.png");
  const bool several = o.request.count != 1 || !o.prompt_file.empty() ||
                       !o.request.embeddings.empty() || o.classes.find(',') != std::string::npos;
  const bool is_single = o.output.requested_path && !several;  // videos have another default name
  return {"-o", path, path.ends_with(".mp4") ? FileKind::video : FileKind::image,
          is_single ? 1 : 0};
}

void generate(Options& o, const std::stop_token& stop, const Processes* processes) {
  const bool chooses = o.model->plan == kAutoPlan;
  RunOptions run = chooses ? RunOptions() : run_options(*o.model, processes);
  const bool first = !processes || processes->rank() == 0;
  if (first) check_files(files_of(o, images_of(o)));
  set_subject(o, stop);
  for (const std::string& image : o.images) o.request.images.push_back({.file = image});
  if (!o.mask.empty()) o.request.mask = InputImage{.file = o.mask};
  if (!o.margins.empty()) o.request.outpaint = parse_margins(o.margins);
  o.request.decode = !o.latents_only;
  o.request.previews = !o.preview.empty();
  set_tiling(o.tiling, o.request.vae_tiling, o.request.vae_tile);
  if (o.latents_only && o.request.save_latents.empty())
    throw Error(ErrorCode::usage, "--latents-only makes nothing without --save-latents FILE");
  if (chooses) {
    print_note(choose_auto_plan(*o.model, o.request, processes, stop));
    run = run_options(*o.model, processes);
  }
  const size_t subjects = std::max<size_t>(o.request.classes.size() + o.request.prompts.size(), 1);
  ProgressView view(first ? o.progress : "none");
  PreviewFile preview(first ? o.preview : "", o.preview_every, o.output.rate);
  RunControl control{stop,
                     [&](const Progress& p) {
                       view.show(p);
                       if (const std::string message = preview.show(p, stop); !message.empty()) {
                         view.end_line();
                         print_note(message);
                       }
                     },
                     [&](const std::string& sentence) { view.note(sentence); }};
  if (first && o.latents_only && o.output.requested_path)
    view.note("-o has no effect: --latents-only makes no image");
  if (first && o.request.compare_steps && o.report.empty())
    view.note("--compare-steps has no effect: its numbers are part of --report");
  GenerateResult result;
  const TimelineFile timeline(o.timeline, processes);
  {
    Model model = Model::open(o.model->model, run, stop, o.model->files);
    o.output.videos = model.makes_videos();
    if (first) check_preview(o.preview, o.output.videos);
    const size_t count = subjects * static_cast<size_t>(std::max(o.request.count, 1));
    o.output.overwrite = o.request.overwrite;
    const RunOutput images = o.latents_only ? RunOutput{} : check_output(o.output, count);
    if (first) check_files(files_of(o, images));
    result = model.generate(o.request, control);
  }
  view.end_line();
  if (preview.waits()) print_note("no preview: this run had no step to show; see --preview-every");
  if (!result.elsewhere) save(result, o, stop);
  timeline.save();
}

}  // namespace

Command add_generate(CLI::App& program) {
  CLI::App* app = program.add_subcommand("generate", "Generate images and videos");
  auto options = std::make_shared<Options>();
  add_options(*app, options);
  return {app,
          [options](const std::stop_token& stop) {
            run_ranks(*options->model,
                      [&](const Processes* processes) { generate(*options, stop, processes); });
          },
          true};
}

}  // namespace tessera::cli
