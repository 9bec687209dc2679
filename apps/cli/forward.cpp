#include <cstdio>

#include "arguments.h"
#include "commands.h"
#include "progress.h"

namespace tessera::cli {

namespace {

void add_files(CLI::App& app, ForwardRequest& request) {
  const char* group = kFiles;
  app.add_option("--inputs", request.inputs, "Input tensors, named as in the reference")
      ->required()
      ->group(group)
      ->type_name("F");
  app.add_option("--outputs", request.outputs, "File for the result (safetensors, tensor out)")
      ->required()
      ->group(group)
      ->type_name("F");
  app.add_flag("--overwrite", request.overwrite, "Replace a file that Tessera did not write")
      ->group(group);
}

}  // namespace

Command add_forward(CLI::App& program) {
  CLI::App* app = program.add_subcommand("forward", "Run one component on tensors from a file");
  auto model = std::make_shared<ModelOptions>();
  auto request = std::make_shared<ForwardRequest>();
  model->dtype = Precision::f32;
  add_model(*app, model);
  const char* group = kFiles;
  add_choice(*app, "--component", request->component,
             "transformer, model, moe_layer, vae.decode, ...")
      ->group(group)
      ->type_name("NAME");
  add_files(*app, *request);
  auto moe = std::make_shared<std::string>();
  app->add_option("--moe", *moe, "For a moe_layer: gate=NAME,top_k=K,experts=FORM,...")
      ->group(group)
      ->type_name("M");
  auto tiling = std::make_shared<std::string>("auto");
  app->add_option("--vae-tiling", *tiling, "VAE in tiles: on, a side in pixels, or off (default)")
      ->group(group)
      ->type_name("T");
  app->add_option("--vae-chunk", request->vae_chunk, "Lines at a time in the VAE (default: all)")
      ->check(positive())
      ->group(group)
      ->type_name("N");
  app->add_flag("--trace", request->trace, "Also write the hidden states after each block")
      ->group(group);
  add_loras(*app, request->loras);
  app->add_flag("--merge-lora", request->merge_lora, "Into the weights, not beside their products")
      ->group(kAdapters);
  add_model_options(*app, model);
  add_weight_files(*app, model);
  add_memory_budget(*app, model, "Memory limit, e.g. 4GB (default: the machine's)");
  const auto run = [model, request, moe, tiling](const std::stop_token& stop,
                                                 const Processes* processes) {
    if (!moe->empty()) request->moe = parse_moe_layer(*moe);
    set_tiling(*tiling, request->vae_tiling, request->vae_tile);
    const bool first = !processes || processes->rank() == 0;
    std::vector<RunInput> inputs{{"--inputs", request->inputs}};
    for (const Lora& lora : request->loras) inputs.push_back({"--lora", lora.file});
    if (first)
      check_files({model->model,
                   inputs,
                   {{"--outputs", request->outputs, FileKind::tensors}},
                   request->overwrite,
                   model->files});
    RunControl control{stop, {}, {}};
    if (first) control.on_note = print_note;
    Model::open(model->model, run_options(*model, processes), stop, model->files)
        .forward(*request, control);
    if (first) std::printf("%s\n", request->outputs.c_str());
  };
  return {app,
          [model, run](const std::stop_token& stop) {
            run_ranks(*model, [&](const Processes* processes) { run(stop, processes); });
          },
          true};
}

}  // namespace tessera::cli
