#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "commands.h"
#include "progress.h"

namespace tessera::cli {
namespace {

struct Options {
  std::shared_ptr<ModelOptions> model = std::make_shared<ModelOptions>();
  GenerateRequest request;
  std::string classes, prompt, prompt_file, noise = "torch", output = "tessera.png", report,
                                            progress = "auto", scheduler = "auto";
  bool latents_only = false;
};

// "1,2,red circle" -> {"1", "2", "red circle"}
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t from = 0; from <= text.size();) {
    const size_t comma = std::min(text.find(',', from), text.size());
    parts.push_back(text.substr(from, comma - from));
    from = comma + 1;
  }
  return parts;
}

// Lines of a file that are not empty.
std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::usage, "--prompt-file: cannot read '" + path + "'");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) lines.push_back(line);
  }
  if (lines.empty()) throw Error(ErrorCode::usage, "--prompt-file: '" + path + "' holds no line");
  return lines;
}

// What to make: classes, or text.
void set_subject(Options& o) {
  const int ways = !o.classes.empty() + !o.prompt.empty() + !o.prompt_file.empty();
  if (ways > 1)
    throw Error(ErrorCode::usage, "give one of --class, --prompt and --prompt-file, not several");
  if (ways == 0 && o.request.embeddings.empty())
    throw Error(ErrorCode::usage, "what to make is missing: give --class C, or --prompt T");
  if (!o.classes.empty()) o.request.classes = split(o.classes);
  if (!o.prompt.empty()) o.request.prompts = {o.prompt};
  if (!o.prompt_file.empty()) o.request.prompts = read_lines(o.prompt_file);
}

// A device or a pipe, such as /dev/stdout.
bool is_special(const std::string& output) {
  std::error_code ignored;
  const auto status = std::filesystem::status(output, ignored);
  return output.starts_with("/dev/") || std::filesystem::is_fifo(status);
}

bool is_folder(const std::string& output) {
  std::error_code ignored;
  return output.ends_with('/') || std::filesystem::is_directory(output, ignored);
}

// Everything that is going to be written can be written: asked before the work.
void check_output(const Options& o, size_t pictures) {
  namespace fs = std::filesystem;
  if (!o.report.empty()) check_writable(o.report);
  if (o.latents_only) return;
  if (is_folder(o.output)) {
    std::error_code ignored;
    fs::path there = fs::absolute(o.output, ignored);
    while (!fs::exists(there, ignored) && there.has_parent_path()) there = there.parent_path();
    check_writable((there / "tessera").string());
  } else if (is_special(o.output)) {
    if (pictures > 1)
      throw Error(ErrorCode::usage, "output '" + o.output + "' takes one picture, not " +
                                        std::to_string(pictures) + "; name a folder");
    check_writable(o.output);
  } else if (const auto end = fs::path(o.output).extension(); end != ".png" && end != ".PNG") {
    throw Error(ErrorCode::usage, "output '" + o.output +
                                      "': expected a name that ends in .png, or a folder (with '/' "
                                      "at its end)");
  } else {
    check_writable(o.output);
  }
}

std::string numbered(const std::string& output, size_t index, size_t count) {
  const std::filesystem::path path(output);
  if (is_folder(output)) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error)
      throw Error(ErrorCode::usage, "cannot make the folder '" + output + "': " + error.message());
    char name[32];
    std::snprintf(name, sizeof name, "%04zu.png", index);
    return (path / name).string();
  }
  if (count == 1) return output;
  char tail[32];
  std::snprintf(tail, sizeof tail, "-%04zu.png", index);
  return (path.parent_path() / (path.stem().string() + tail)).string();
}

// Frames stand in one folder, or in a folder a video.
std::string path_of(const GenerateResult& result, const std::string& output, size_t index) {
  const Picture& picture = result.pictures[index];
  if (picture.video < 0) return numbered(output, index, result.pictures.size());
  char folder[32] = "";
  if (result.pictures.back().video > 0)
    std::snprintf(folder, sizeof folder, "video-%04d/", picture.video);
  std::string place = (std::filesystem::path(output) / folder).string();
  if (!place.ends_with('/')) place += '/';
  return numbered(place, static_cast<size_t>(picture.frame), 2);
}

void save(const GenerateResult& result, const Options& o) {
  const GenerateRequest& q = o.request;
  for (size_t i = 0; i < result.pictures.size(); ++i) {
    const Picture& picture = result.pictures[i];
    const std::string path = path_of(result, o.output, i);
    save_png(picture, path,
             {{"Software", std::string("Tessera ") + kVersion},
              {"parameters", picture.label + "; model " + o.model->model + ", steps " +
                                 std::to_string(result.steps) + ", guidance " +
                                 std::to_string(result.guidance) + ", seed " +
                                 std::to_string(q.seed) + ", picture " + std::to_string(i)}});
    if (is_special(path)) continue;  // the picture itself may be on standard output
    std::printf("%s\n", path.c_str());
    flush_results();
  }
  if (!q.save_latents.empty()) std::printf("%s\n", q.save_latents.c_str());
  if (!o.report.empty()) save_text(to_json(result.report) + "\n", o.report);
}

void add_subject(CLI::App& app, const std::shared_ptr<Options>& o) {
  GenerateRequest& q = o->request;
  const char* what = "What to make";
  app.add_option("--class", o->classes, "Class numbers or names; 'inspect' lists them")
      ->group(what)
      ->type_name("C[,C...]");
  app.add_option("--prompt", o->prompt, "Text; a file, one a line")->group(what)->type_name("T");
  app.add_option("--prompt-file", o->prompt_file)->group(what)->type_name("F");
  app.add_option("--negative-prompt", q.negative_prompt)->group(what)->type_name("T");
  app.add_option("--embeddings", q.embeddings, "What text encoders give; what they read")
      ->group(what)
      ->type_name("F");
  app.add_option("--text-tokens", q.text_tokens)->check(positive())->group(what)->type_name("N");
}

void add_run(CLI::App& app, const std::shared_ptr<Options>& o) {
  GenerateRequest& q = o->request;
  const char* what = "What to make";
  app.add_option("--count", q.count, "Pictures for each class or prompt (default 1)")
      ->group(what)
      ->type_name("N");
  app.add_option("--width", q.width, "Pixels, frames (default: as trained)")
      ->check(positive())
      ->group(what)
      ->type_name("W");
  app.add_option("--height", q.height)->check(positive())->group(what)->type_name("H");
  app.add_option("--frames", q.frames)->check(positive())->group(what)->type_name("N");
  app.add_option("--steps", q.steps, "Default: the model's; auto, rectified-flow or ddpm")
      ->group(what)
      ->type_name("N");
  app.add_option("--scheduler", o->scheduler)
      ->check(CLI::IsMember({"auto", "rectified-flow", "ddpm"}))
      ->group(what)
      ->type_name("S");
  app.add_option("--guidance", q.guidance, "1: none (default: the model's)")
      ->group(what)
      ->type_name("G");
  app.add_option("--true-guidance", q.true_guidance)->group(what)->type_name("G");
  app.add_option("--seed", q.seed, "Seed (default 0) of torch or philox noise")
      ->group(what)
      ->type_name("S");
  app.add_option("--rng", o->noise)
      ->check(CLI::IsMember({"torch", "philox"}))
      ->group(what)
      ->type_name("R");
}

void add_files(CLI::App& app, const std::shared_ptr<Options>& o) {
  GenerateRequest& q = o->request;
  const char* files = "Files";
  app.add_option("-o,--output", o->output, "Picture (.png) or folder (default tessera.png)")
      ->group(files)
      ->type_name("OUT");
  app.add_option("--initial-latents", q.initial_latents, "Start from `latents` of this file")
      ->group(files)
      ->type_name("F");
  app.add_option("--save-latents", q.save_latents, "Write the final latents; stop there")
      ->group(files)
      ->type_name("F");
  app.add_flag("--latents-only", o->latents_only)->group(files);
  app.add_option("--trace", q.trace, "Every step's tensors; a report (JSON)")
      ->group(files)
      ->type_name("F");
  app.add_option("--report", o->report)->group(files)->type_name("F");
  app.add_flag("--compare-steps", q.compare_steps)->group(files);
  app.add_option("--progress", o->progress, "auto, plain or none (default auto)")
      ->check(CLI::IsMember({"auto", "plain", "none"}))
      ->group(files)
      ->type_name("P");
}

void add_options(CLI::App& app, const std::shared_ptr<Options>& o) {
  add_model(app, o->model);
  add_subject(app, o);
  add_run(app, o);
  add_files(app, o);
  add_model_options(app, o->model);
}

void generate(Options& o, const std::stop_token& stop, const Processes* processes) {
  const RunOptions run = run_options(*o.model, processes);
  const bool first = !processes || processes->rank == 0;
  set_subject(o);
  o.request.noise = o.noise == "torch" ? NoiseSource::torch : NoiseSource::philox;
  o.request.scheduler = o.scheduler;
  o.request.decode = !o.latents_only;
  if (o.latents_only && o.request.save_latents.empty())
    throw Error(ErrorCode::usage, "--latents-only makes nothing without --save-latents FILE");
  const size_t subjects = std::max<size_t>(o.request.classes.size() + o.request.prompts.size(), 1);
  if (first) check_output(o, subjects * static_cast<size_t>(std::max(o.request.count, 1)));
  ProgressView view(first ? o.progress : "none");
  RunControl control{stop, [&](const Progress& p) { view.show(p); }};
  GenerateResult result;
  {
    Model model = Model::open(o.model->model, run);
    result = model.generate(o.request, control);
  }
  view.end_line();
  if (!result.elsewhere) save(result, o);
}

}  // namespace

Command add_generate(CLI::App& program) {
  CLI::App* app = program.add_subcommand("generate", "Make pictures");
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
