#include <map>
#include <utility>

#include "base/fail.h"
#include "engine/model_state.h"
#include "nn/local_spatial.h"
#include "ops/elementwise.h"
#include "parallel/denoise.h"

namespace tessera {
namespace {

using tensor::DType;
using tensor::Tensor;
using Tensors = std::map<std::string, Tensor>;

const Tensor& input(const load::SafetensorsFile& file, Tensors& inputs, const std::string& name,
                    const std::string& all) {
  const auto found = inputs.find(name);
  require(found != inputs.end(), ErrorCode::usage, "'{}' holds no tensor '{}'; this component takes {}",
          file.path(), name, all);
  return found->second;
}

Tensor as_f32(const Tensor& x) {
  if (tensor::is_float(x.dtype())) return ops::cast(x, DType::f32).contiguous();
  const auto whole = x.to_ints();
  const std::vector<float> values(whole.begin(), whole.end());
  return Tensor::from(std::span<const float>(values), x.shape());
}

Tensors run_transformer(Model::State& state, const load::SafetensorsFile& file, Tensors& inputs,
                        bool trace, const RunControl& control) {
  const auto names = state.recipe->forward_names();
  std::string all = names.latent + ", " + names.timestep;
  for (const auto& name : names.conditioning) all += ", " + name;
  const Tensor latent = as_f32(input(file, inputs, names.latent, all));
  require(latent.rank() == 4 && latent.size(0) >= 1, ErrorCode::usage,
          "'{}': '{}' is {}; expected [rows, channels, height, width]", file.path(), names.latent,
          latent.shape().str());
  const nn::TokenLayout layout = state.recipe->layout(latent.size(2), latent.size(3));
  const int rows = static_cast<int>(latent.size(0));
  const nn::TokenShape shape{rows, 0, layout.grid()};
  const Tensor time = as_f32(input(file, inputs, names.timestep, all));
  require(time.elements() == rows, ErrorCode::usage, "'{}': '{}' has {} values for {} rows",
          file.path(), names.timestep, time.elements(), rows);
  nn::Conditioning conditioning;
  for (const auto& name : names.conditioning)
    conditioning.tensors[name] = input(file, inputs, name, all);
  Tensors outputs;
  parallel::DenoiseControl watch;
  watch.stop = control.stop;
  if (trace)
    watch.trace = [&](const std::string& name, const Tensor& x) {
      outputs[name] = ops::cast(x, DType::f32).reshape({rows, x.size(0) / rows, x.size(1)});
    };
  parallel::Assembly assembly =
      parallel::assemble(state.transformer().geometry(), state.options.plan);
  const Tensor out = parallel::forward(state.transformer(), conditioning, shape, time.reshape({rows}),
                                       nn::to_tokens(latent, layout), assembly, watch);
  nn::TokenLayout predicted = layout;
  predicted.channels = out.size(1) / (layout.token_channels() / layout.channels);
  outputs["out"] = nn::from_tokens(out, predicted, false);
  return outputs;
}

Tensors run_decoder(Model::State& state, const load::SafetensorsFile& file, Tensors& inputs,
                    bool trace) {
  const Tensor latent = as_f32(input(
      file, inputs, inputs.contains("z") ? "z" : "sample", "sample [rows, channels, height, width]"));
  Tensors outputs;
  nn::LocalSpatial spatial;
  models::AutoencoderKL::Trace watch;
  if (trace)
    watch = [&](const std::string& name, const Tensor& x) { outputs[name] = ops::cast(x, DType::f32); };
  outputs["out"] = state.load_vae()->decode(latent, spatial, watch);
  return outputs;
}

}  // namespace

void Model::forward(const ForwardRequest& request, const RunControl& control) {
  State& state = *state_;
  const tensor::BindScope bind(state.scope());
  const load::SafetensorsFile file(request.inputs);
  Tensors inputs;
  for (const auto& [name, entry] : file.entries()) inputs[name] = file.get(name);
  Tensors outputs;
  if (request.component == "transformer" || request.component == "model") {
    require(state.recipe != nullptr, ErrorCode::usage, "'{}' has no transformer", state.name);
    outputs = run_transformer(state, file, inputs, request.trace, control);
  } else if (request.component == "vae.decode") {
    require(state.has_vae(), ErrorCode::usage, "'{}' has no VAE", state.name);
    outputs = run_decoder(state, file, inputs, request.trace);
  } else {
    fail(ErrorCode::usage, "component '{}' is not known; known are transformer and vae.decode",
         request.component.substr(0, 60));
  }
  load::write_safetensors(request.outputs, outputs);
}

}  // namespace tessera
