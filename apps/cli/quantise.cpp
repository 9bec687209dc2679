#include <algorithm>
#include <cstdio>

#include "arguments.h"
#include "commands.h"
#include "inputs.h"
#include "progress.h"

namespace tessera::cli {
namespace {

struct Options {
  ModelOptions model;
  QuantiseRequest request;
  bool smooth = false;
  std::vector<std::string> prompts, classes;
  GenerateRequest calibration;  // a run, for each prompt or class
  std::string progress = "auto";
  bool json = false;
};

std::string gigabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, bytes < 1e9 ? "%.1f MB" : "%.2f GB",
                double(bytes) / (bytes < 1e9 ? 1e6 : 1e9));
  return text;
}

// Formats the errors of the quantised matrices.
std::string errors_of(const QuantiseResult& result) {
  const auto worst = std::ranges::max_element(result.each, {}, &QuantisedMatrix::relative_error);
  double sum = 0;
  for (const QuantisedMatrix& matrix : result.each) sum += matrix.relative_error;
  char text[96];
  std::snprintf(text, sizeof text, "off by %.2f %% of their size on average, %.2f %% at most (",
                100 * sum / double(result.each.size()), 100 * worst->relative_error);
  return text + worst->name + ")";
}

// "int8", "int4" or both.
std::string forms_of(const QuantiseResult& result) {
  const auto any = [&](int bits) {
    return std::ranges::count(result.each, bits, &QuantisedMatrix::bits) > 0;
  };
  return std::string(any(4) ? "int4" : "") + (any(4) && any(8) ? " and " : "") +
         (any(8) ? "int8" : "");
}

// The runs of --smooth.
void add_calibration(Options& o, const std::stop_token& stop) {
  if (o.smooth && o.prompts.empty() && o.classes.empty())
    throw Error(ErrorCode::usage, "--smooth: give a --prompt or --class of runs that calibrate");
  for (const std::string& prompt : o.prompts) {
    GenerateRequest& run = o.request.calibration.emplace_back(o.calibration);
    run.prompts = {read_text(prompt, "--prompt", stop)};
  }
  for (const std::string& name : o.classes)
    o.request.calibration.emplace_back(o.calibration).classes = {name};
}

void quantise(Options& o, const std::stop_token& stop) {
  add_calibration(o, stop);
  check_files(
      {o.model.model, {}, {{"-o", o.request.output, FileKind::model}}, false, o.model.files});
  ProgressView view(o.progress);
  const Model model = Model::open(o.model.model, run_options(o.model), stop, o.model.files);
  const QuantiseResult result =
      model.quantise(o.request, {stop, [&](const Progress& p) { view.show(p); },
                                 [&](const std::string& sentence) { view.note(sentence); }});
  view.note(std::to_string(result.matrices) + " matrices are in " + forms_of(result) + ": " +
            gigabytes(result.bytes) + " of weights, which were " + gigabytes(result.bytes_before) +
            "; " + errors_of(result));
  view.end_line();
  std::printf("%s\n", o.json ? to_json(result).c_str() : o.request.output.c_str());
}

void add_calibration_options(CLI::App& app, const std::shared_ptr<Options>& o) {
  o->calibration.steps = 8;
  const char* group = "Smoothing";
  CLI::Option* const smooth =
      app.add_flag("--smooth", o->smooth, "Scale outlier channels where that lowers the error")
          ->group(group);
  add_text(app, "--prompt", o->prompts, "Text of a calibrating run, repeatable")
      ->needs(smooth)
      ->group(group);
  app.add_option("--class", o->classes, "Class number or name instead, repeatable")
      ->needs(smooth)
      ->group(group)
      ->type_name("C");
  app.add_option("--steps", o->calibration.steps, "Denoising steps of a run (default 8)")
      ->check(positive())
      ->needs(smooth)
      ->group(group)
      ->type_name("N");
  for (auto [name, side] :
       {std::pair{"--width", &o->calibration.width}, {"--height", &o->calibration.height}})
    app.add_option(name, *side, "Pixels of a run (default: as trained)")
        ->check(positive())
        ->needs(smooth)
        ->group(group)
        ->type_name("N");
}

}  // namespace

Command add_quantise(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("quantise", "Write a model folder with int8 or int4 weights");
  auto o = std::make_shared<Options>();
  app->add_option("MODEL", o->model.model, "Folder, hub id, or shipped: shapes, tasks-a, -b, -c")
      ->required();
  app->add_option("-o,--output", o->request.output, "New folder, which must not exist")
      ->required()
      ->type_name("DIR");
  add_choice(*app, "--experts", o->request.experts,
             "Experts: int8 (default), or int4 in groups of 32")
      ->check(one_of({"int8", "int4"}))
      ->type_name("T");
  app->add_option_function<std::string>(
         "--dense", [o](const std::string&) { o->request.dense = Precision::int8; },
         "Other layers: int8 (default: unchanged)")
      ->check(one_of({"int8"}))
      ->type_name("T");
  add_choice(*app, "--dtype", o->request.dtype, "Form of a pipeline's products: int8 or int4")
      ->check(one_of({"int8", "int4"}))
      ->type_name("T");
  app->add_option("--quantise-rules", o->request.rules,
                  "Forms of products, e.g. attn=int8,mlp=int4")
      ->type_name("R");
  add_transformer_file(*app, std::shared_ptr<ModelOptions>(o, &o->model));
  add_text(*app, "--text-encoder", o->model.files.text_encoders, "A text encoder's, or NAME=FILE")
      ->group(kExecution)
      ->type_name("F");
  add_calibration_options(*app, o);
  app->add_flag("--json", o->json, "Print bytes and the error of each matrix as JSON");
  app->add_option("--threads", o->model.threads, "Threads of this process (default: all cores)")
      ->check(whole(1, 4096))
      ->type_name("N");
  app->add_option("--progress", o->progress, "Progress: auto (default), plain or none")
      ->check(one_of({"auto", "plain", "none"}))
      ->type_name("MODE");
  return {app, [o](const std::stop_token& stop) { quantise(*o, stop); }};
}

}  // namespace tessera::cli
