#include "pipeline/forward.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/output_file.h"
#include "base/stop.h"
#include "load/safetensors.h"
#include "nn/local_spatial.h"
#include "ops/elementwise.h"
#include "parallel/denoise.h"
#include "pipeline/check_request.h"
#include "pipeline/encode_text.h"
#include "pipeline/forward_moe_layer.h"
#include "pipeline/forward_tokens.h"
#include "pipeline/memory_plan.h"
#include "pipeline/tensor_view.h"
#include "tessera/words.h"

namespace tessera::pipeline {
namespace {

using tensor::DType;
using tensor::Tensor;
using Tensors = std::map<std::string, Tensor>;

// Of the file, or from memory.
Tensors inputs_of(const ForwardRequest& request) {
  require(request.inputs.empty() != request.tensors.empty(), ErrorCode::usage,
          "forward takes a file of inputs or tensors, one of both");
  Tensors inputs;
  for (const auto& [name, view] : request.tensors) inputs[name] = tensor_of(name, view);
  if (request.inputs.empty()) return inputs;
  const load::SafetensorsFile file(request.inputs);
  for (const auto& [name, entry] : file.entries()) inputs[name] = file.get(name);
  return inputs;
}

const Tensor& input(const std::string& file, Tensors& inputs, const std::string& name,
                    const std::string& all) {
  const auto found = inputs.find(name);
  require(found != inputs.end(), ErrorCode::usage,
          "'{}' holds no tensor '{}'; this component takes {}", file, name, all);
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
  for (const float place : values)
    require(place >= 0 && place < 1 << 20, ErrorCode::usage,
            "'img_ids' holds {}; expected positions from 0 to {}", place, (1 << 20) - 1);
  for (size_t i = 0; i + 2 < values.size(); i += 3) {
    grid.first = std::max(grid.first, static_cast<int64_t>(values[i + 1]) + 1);
    grid.second = std::max(grid.second, static_cast<int64_t>(values[i + 2]) + 1);
  }
  return grid;
}

nn::TokenLayout layout_of(const models::PipelineSpec& spec, const Tensor& latent,
                          const std::string& file, const std::string& name, const Tensors& inputs) {
  const nn::LatentForm form = spec.form;
  const bool packed = form == nn::LatentForm::packed, video = form == nn::LatentForm::video;
  require(latent.rank() == (packed  ? 3
                            : video ? 5
                                    : 4) &&
              latent.size(0) >= 1,
          ErrorCode::usage, "'{}': '{}' is {}; expected {}", file, name, latent.shape().str(),
          packed  ? "[batch, tokens, channels]"
          : video ? "[batch, frames, channels, height, width]"
                  : "[batch, channels, height, width]");
  if (!packed) {
    const int at = video ? 3 : 2;
    return spec.layout(latent.size(at), latent.size(at + 1), video ? latent.size(1) : 0);
  }
  const auto ids = inputs.find("img_ids");
  if (ids != inputs.end()) {
    const auto [lines, columns] = packed_grid(ids->second);
    return spec.layout(2 * lines, 2 * columns);
  }
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(double(latent.size(1)))));
  require(side * side == latent.size(1), ErrorCode::usage,
          "'{}': {} tokens are no square; give their positions 'img_ids' [tokens, 3]", file,
          latent.size(1));
  return spec.layout(2 * side, 2 * side);
}

Tensors run_transformer(ModelState& state, const std::string& file, Tensors& inputs, bool trace,
                        const RunControl& control) {
  const models::PipelineSpec& spec = *state.spec;
  const auto names = spec.forward_names;
  std::string all = names.latent + ", " + names.timestep;
  for (const auto& name : names.conditioning) all += ", " + name;
  const Tensor latent = as_f32(input(file, inputs, names.latent, all));
  const nn::TokenLayout layout = layout_of(spec, latent, file, names.latent, inputs);
  const int batch = static_cast<int>(latent.size(0));
  Tensor time = as_f32(input(file, inputs, names.timestep, all));
  require(time.elements() == batch, ErrorCode::usage, "'{}': '{}' has {} values for a batch of {}",
          file, names.timestep, time.elements(), batch);
  time = ops::blend(time.reshape({batch}), names.timestep_scale, time.reshape({batch}), 0);
  nn::Conditioning conditioning;
  for (const auto& name : names.conditioning)
    conditioning.tensors[name] = input(file, inputs, name, all);
  for (const auto& name : names.optional)
    if (inputs.contains(name)) conditioning.tensors[name] = inputs.at(name);
  Tensors outputs;
  parallel::DenoiseControl watch;
  watch.stop = control.stop;
  if (trace)
    watch.trace = [&](const std::string& name, const Tensor& x) {
      outputs[name] = ops::cast(x, DType::f32).reshape({batch, x.size(0) / batch, x.size(1)});
    };
  const auto network = state.transformer();
  parallel::Setup setup({}, network->geometry(),
                        {batch, layout.grid(), 1, 1, spec.prefix(conditioning)}, nullptr,
                        {state.device()});
  const Tensor out = parallel::forward(
      *network, conditioning, time, nn::tokens_of_latent(latent, layout, spec.form), setup, watch);
  nn::TokenLayout predicted = layout;
  predicted.channels = out.size(1) / (layout.token_channels() / layout.channels);
  outputs["out"] = nn::latent_of_tokens(out, predicted, spec.form);
  return outputs;
}

/// How a VAE runs: what it is given, and in which tiles.
struct VaeRun {
  std::optional<models::Tiling> tiles;
  models::VaeWatch watch;
};

Tensor run_decoder(const ModelState& state, const Tensor& latent, const VaeRun& run) {
  nn::LocalSpatial spatial;
  const auto vae = state.load_vae();
  const auto whole = [&](const Tensor& z) {
    return vae->decode(z.to(state.device()), spatial, run.watch).to(tensor::Device::cpu);
  };
  return run.tiles ? models::decode_tiles(latent, state.vae_factor(), *run.tiles, whole)
                   : whole(latent);
}

// Mean and log variance behind each other: [batch, 2 * channels, ...].
Tensor joined(const models::VaeMoments& m) {
  const int64_t batch = m.mean.size(0), width = m.mean.elements() / batch;
  std::vector<int64_t> sizes(m.mean.shape().begin(), m.mean.shape().end());
  sizes[1] *= 2;
  return ops::concat_columns({m.mean.reshape({batch, width}), m.logvar.reshape({batch, width})})
      .reshape(tensor::Shape(sizes));
}

Tensor run_encoder(const ModelState& state, const Tensor& images, const VaeRun& run) {
  nn::LocalSpatial spatial;
  const auto vae = state.load_vae_encoder();
  const auto whole = [&](const Tensor& x) {
    return joined(vae->encode(x.to(state.device()), spatial, run.watch)).to(tensor::Device::cpu);
  };
  return run.tiles ? models::encode_tiles(images, state.vae_factor(), *run.tiles, whole)
                   : whole(images);
}

Tensors run_vae(ModelState& state, const std::string& file, Tensors& inputs,
                const ForwardRequest& request) {
  const bool decode = request.component == ModelPart::vae_decode;
  const char* const other = decode ? "z" : "x";
  const Tensor sample = as_f32(input(
      file, inputs, inputs.contains(other) ? other : "sample",
      decode ? "sample [batch, channels, height, width]" : "sample [batch, 3, height, width]"));
  require(sample.rank() >= 4 && sample.elements() > 0, ErrorCode::usage,
          "'{}': the sample is {}; expected batch, channels, and sides above 0", file,
          sample.shape().str());
  Tensors outputs;
  VaeRun run;
  if (request.vae_tiling == VaeTiling::on) run.tiles = vae_tiles(state, request.vae_tile);
  require(!run.tiles || !request.trace, ErrorCode::usage,
          "there is no --trace of tiles; leave out --vae-tiling");
  if (request.trace)
    run.watch.trace = [&](const std::string& name, const Tensor& x) {
      outputs[name] = ops::cast(x, DType::f32).to(tensor::Device::cpu);
    };
  if (decode) {
    outputs["out"] = run_decoder(state, sample, run);
    return outputs;
  }
  const Tensor moments = run_encoder(state, sample, run);
  const int64_t channels = moments.size(1) / 2;
  outputs["out"] = outputs["mean"] = moments.slice(1, 0, channels).contiguous();
  outputs["logvar"] = moments.slice(1, channels, 2 * channels).contiguous();
  return outputs;
}

}  // namespace

NamedTensors forward(ModelState& state, const ForwardRequest& request, const RunControl& control) {
  check_request(request);
  const Turn turn(state);
  const base::BindStop stop(control.stop);
  const std::string component = word_of(request.component);
  const bool transformer = request.component <= ModelPart::model;
  const bool language = transformer && state.language != nullptr;
  const bool layer = request.component == ModelPart::moe_layer;
  const bool decode = request.component == ModelPart::vae_decode;
  const bool text = request.component >= ModelPart::text_encoder;
  require(!transformer || state.options.plan.world() == 1, ErrorCode::plan,
          "forward runs one component on one rank; leave out --plan and --ranks");
  const std::string part = transformer ? "transformer" : text || layer ? component : "vae";
  if (state.folder.absent.contains(part)) state.folder.component(part);
  require(language      ? true
          : transformer ? state.spec.has_value()
          : layer       ? state.layer.has_value()
          : text        ? state.folder.has(component)
                        : state.has_vae(),
          ErrorCode::usage, "'{}' has no {}; give a folder that has one", state.name,
          part == "vae" ? "VAE" : part);
  if (!request.outputs.empty()) base::check_writable(request.outputs);
  if (control.on_note && !text && !layer) {
    const std::string said = language      ? state.language->check(state.dtype())
                             : transformer ? state.check_transformer()
                             : decode      ? state.check_vae()
                                           : "";
    if (!said.empty()) control.on_note(said);
  }
  const tensor::BindScope bind(state.workers.scope());
  Tensors inputs = inputs_of(request);
  const std::string file = request.inputs.empty() ? "the request" : request.inputs;
  const Tensors outputs = layer      ? forward_moe_layer(state, inputs, request, control)
                          : language ? forward_tokens(state, inputs, request.trace, control.stop)
                          : transformer
                              ? run_transformer(state, file, inputs, request.trace, control)
                          : text ? forward_text(state, component, inputs, request.trace, control)
                                 : run_vae(state, file, inputs, request);
  require(!control.stop.stop_requested(), ErrorCode::cancelled,
          "stopped before the result of '{}' was there", component);
  NamedTensors given;
  for (const auto& [name, x] : outputs) given[name] = data_of(x);
  if (!request.outputs.empty()) load::write_safetensors(request.outputs, outputs);
  return given;
}

}  // namespace tessera::pipeline
