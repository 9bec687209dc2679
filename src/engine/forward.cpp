#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/fail.h"
#include "base/output_file.h"
#include "engine/encode_text.h"
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
  require(found != inputs.end(), ErrorCode::usage,
          "'{}' holds no tensor '{}'; this component takes {}", file.path(), name, all);
  return found->second;
}

Tensor as_f32(const Tensor& x) {
  if (tensor::is_float(x.dtype())) return ops::cast(x, DType::f32).contiguous();
  const auto whole = x.to_ints();
  const std::vector<float> values(whole.begin(), whole.end());
  return Tensor::from(std::span<const float>(values), x.shape());
}

// Lines and columns of packed tokens, from their positions (t, line, column).
std::pair<int64_t, int64_t> packed_grid(const Tensor& ids) {
  const Tensor places = as_f32(ids);
  require(places.rank() >= 2 && places.size(-1) == 3, ErrorCode::usage,
          "'img_ids' is {}; expected [tokens, 3]", ids.shape().str());
  std::pair<int64_t, int64_t> grid{1, 1};
  const std::vector<float> values = places.to_floats();
  for (size_t i = 0; i + 2 < values.size(); i += 3) {
    grid.first = std::max(grid.first, static_cast<int64_t>(values[i + 1]) + 1);
    grid.second = std::max(grid.second, static_cast<int64_t>(values[i + 2]) + 1);
  }
  return grid;
}

nn::TokenLayout layout_of(const models::Recipe& recipe, const Tensor& latent,
                          const load::SafetensorsFile& file, const std::string& name,
                          const Tensors& inputs) {
  const nn::LatentForm form = recipe.form();
  const bool packed = form == nn::LatentForm::packed, video = form == nn::LatentForm::video;
  require(latent.rank() == (packed  ? 3
                            : video ? 5
                                    : 4) &&
              latent.size(0) >= 1,
          ErrorCode::usage, "'{}': '{}' is {}; expected {}", file.path(), name,
          latent.shape().str(),
          packed  ? "[rows, tokens, channels]"
          : video ? "[rows, frames, channels, height, width]"
                  : "[rows, channels, height, width]");
  if (!packed) {
    const int at = video ? 3 : 2;
    return recipe.layout(latent.size(at), latent.size(at + 1), video ? latent.size(1) : 0);
  }
  const auto ids = inputs.find("img_ids");
  if (ids != inputs.end()) {
    const auto [lines, columns] = packed_grid(ids->second);
    return recipe.layout(2 * lines, 2 * columns);
  }
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(double(latent.size(1)))));
  require(side * side == latent.size(1), ErrorCode::usage,
          "'{}': {} tokens are no square; give their positions 'img_ids' [tokens, 3]", file.path(),
          latent.size(1));
  return recipe.layout(2 * side, 2 * side);
}

Tensors run_transformer(Model::State& state, const load::SafetensorsFile& file, Tensors& inputs,
                        bool trace, const RunControl& control) {
  const models::Recipe& recipe = *state.recipe;
  const auto names = recipe.forward_names();
  std::string all = names.latent + ", " + names.timestep;
  for (const auto& name : names.conditioning) all += ", " + name;
  const Tensor latent = as_f32(input(file, inputs, names.latent, all));
  require(state.options.plan.world() == 1, ErrorCode::plan,
          "forward runs one component on one rank; leave out --plan and --ranks");
  const nn::TokenLayout layout = layout_of(recipe, latent, file, names.latent, inputs);
  const int rows = static_cast<int>(latent.size(0));
  Tensor time = as_f32(input(file, inputs, names.timestep, all));
  require(time.elements() == rows, ErrorCode::usage, "'{}': '{}' has {} values for {} rows",
          file.path(), names.timestep, time.elements(), rows);
  time = ops::blend(time.reshape({rows}), names.timestep_scale, time.reshape({rows}), 0);
  nn::Conditioning conditioning;
  for (const auto& name : names.conditioning)
    conditioning.tensors[name] = input(file, inputs, name, all);
  for (const auto& name : names.optional)
    if (inputs.contains(name)) conditioning.tensors[name] = inputs.at(name);
  const nn::TokenShape shape{rows, recipe.prefix(conditioning), layout.grid()};
  Tensors outputs;
  parallel::DenoiseControl watch;
  watch.stop = control.stop;
  if (trace)
    watch.trace = [&](const std::string& name, const Tensor& x) {
      outputs[name] = ops::cast(x, DType::f32).reshape({rows, x.size(0) / rows, x.size(1)});
    };
  parallel::Assembly assembly =
      parallel::assemble(state.transformer().geometry(), {}, {rows, layout.tokens(), 1, 1});
  const Tensor out =
      parallel::forward(state.transformer(), conditioning, shape, time,
                        nn::tokens_of_latent(latent, layout, recipe.form()), assembly, watch);
  nn::TokenLayout predicted = layout;
  predicted.channels = out.size(1) / (layout.token_channels() / layout.channels);
  outputs["out"] = nn::latent_of_tokens(out, predicted, recipe.form());
  return outputs;
}

Tensors run_decoder(Model::State& state, const load::SafetensorsFile& file, Tensors& inputs,
                    bool trace) {
  const Tensor latent = as_f32(input(file, inputs, inputs.contains("z") ? "z" : "sample",
                                     "sample [rows, channels, height, width]"));
  Tensors outputs;
  nn::LocalSpatial spatial;
  models::AutoencoderKL::Trace watch;
  if (trace)
    watch = [&](const std::string& name, const Tensor& x) {
      outputs[name] = ops::cast(x, DType::f32);
    };
  outputs["out"] = state.video() ? state.load_video_vae()->decode(latent)
                                 : state.load_vae()->decode(latent, spatial, watch);
  return outputs;
}

Tensors run_encoder(Model::State& state, const load::SafetensorsFile& file, Tensors& inputs,
                    bool trace) {
  const Tensor pictures = as_f32(input(file, inputs, inputs.contains("x") ? "x" : "sample",
                                       "sample [rows, 3, height, width]"));
  Tensors outputs;
  nn::LocalSpatial spatial;
  models::VaeTrace watch;
  if (trace)
    watch = [&](const std::string& name, const Tensor& x) {
      outputs[name] = ops::cast(x, DType::f32);
    };
  if (state.video()) {
    const auto moments = state.load_video_vae_encoder()->encode(pictures);
    return {{"out", moments.mean}, {"mean", moments.mean}, {"logvar", moments.logvar}};
  }
  const auto moments = state.load_vae_encoder()->encode(pictures, spatial, watch);
  outputs["out"] = outputs["mean"] = moments.mean;
  outputs["logvar"] = moments.logvar;
  return outputs;
}

}  // namespace

void Model::forward(const ForwardRequest& request, const RunControl& control) {
  State& state = *state_;
  const std::string& component = request.component;
  const bool transformer = component == "transformer" || component == "model";
  const bool decode = component == "vae.decode", encode = component == "vae.encode";
  const bool text =
      component == "text_encoder" || component == "text_encoder_2" || component == "text_encoder_3";
  require(transformer || decode || encode || text, ErrorCode::usage,
          "component '{}' is not known; known are transformer, vae.decode, vae.encode and "
          "text_encoder (_2, _3)",
          component.substr(0, 60));
  require(transformer ? state.recipe != nullptr
          : text      ? state.folder.has(component)
                      : state.has_vae(),
          ErrorCode::usage, "'{}' has no {}; give a folder that has one", state.name,
          transformer ? "transformer"
          : text      ? component
                      : "VAE");
  base::check_writable(request.outputs);
  const tensor::BindScope bind(state.scope());
  const load::SafetensorsFile file(request.inputs);
  Tensors inputs;
  for (const auto& [name, entry] : file.entries()) inputs[name] = file.get(name);
  const Tensors outputs = transformer ? run_transformer(state, file, inputs, request.trace, control)
                          : text   ? engine::forward_text(state, component, inputs, request.trace)
                          : decode ? run_decoder(state, file, inputs, request.trace)
                                   : run_encoder(state, file, inputs, request.trace);
  require(!control.stop.stop_requested(), ErrorCode::cancelled, "stopped before '{}' was written",
          request.outputs);
  load::write_safetensors(request.outputs, outputs);
}

}  // namespace tessera
