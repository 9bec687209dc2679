#include <cstdio>

#include "commands.h"

namespace tessera::cli {

Command add_forward(CLI::App& program) {
  CLI::App* app = program.add_subcommand("forward", "Run one component on tensors from a file");
  auto model = std::make_shared<ModelOptions>();
  auto request = std::make_shared<ForwardRequest>();
  model->dtype = "f32";
  add_model_options(*app, model);
  const char* group = "What to run";
  app->add_option("--component", request->component,
                  "transformer, vae.decode, vae.encode (default transformer)")
      ->group(group)->type_name("NAME");
  app->add_option("--inputs", request->inputs, "Tensors by the reference's argument names")
      ->required()->group(group)->type_name("F");
  app->add_option("--outputs", request->outputs, "Where `out` is written (safetensors)")
      ->required()->group(group)->type_name("F");
  app->add_flag("--trace", request->trace, "Also write the stream after every block")->group(group);
  return {app, [model, request](std::stop_token stop) {
            Model opened = Model::open(model->model, run_options(*model));
            opened.forward(*request, {stop, {}});
            std::printf("%s\n", request->outputs.c_str());
          }};
}

}  // namespace tessera::cli
