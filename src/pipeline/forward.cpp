#include "pipeline/forward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "admission/memory_plan.h"
#include "base/fail.h"
#include "base/stop.h"
#include "cluster/agree.h"
#include "diffusion/conditioning.h"
#include "diffusion/decode.h"
#include "diffusion/denoise.h"
#include "diffusion/encode_images.h"
#include "diffusion/launch_bands.h"
#include "diffusion/sizes.h"
#include "diffusion/text_encoders.h"
#include "load/meta_weights.h"
#include "load/safetensors.h"
#include "ops/elementwise.h"
#include "ops/finite.h"
#include "parallel/denoise.h"
#include "parallel/spatial/bands.h"
#include "parallel/stages.h"
#include "pipeline/check_request.h"
#include "pipeline/fingerprint.h"
#include "pipeline/forward_moe_layer.h"
#include "pipeline/forward_tokens.h"
#include "runtime/former_output.h"
#include "runtime/launch.h"
#include "runtime/load_adapters.h"
#include "runtime/tensor_view.h"
#include "tessera/words.h"

namespace tessera::pipeline {
namespace {

using tensor::DType;
using tensor::Tensor;
using Tensors = std::map<std::string, Tensor>;

// Inputs from the file or from memory.
Tensors inputs_of(const ForwardRequest& request) {
  require(request.inputs.empty() != request.tensors.empty(), ErrorCode::usage,
          "forward takes a file of inputs or tensors, one of both");
  Tensors inputs;
  for (const auto& [name, view] : request.tensors) inputs[name] = runtime::tensor_of(name, view);
  if (!request.inputs.empty()) {
    const load::SafetensorsFile file(request.inputs);
    for (const auto& [name, entry] : file.entries()) inputs[name] = file.get(name);
  }
  return inputs;
}

const Tensor& input(const std::string& file, Tensors& inputs, const std::string& name,
                    const std::string& expected_names) {
  const auto it = inputs.find(name);
  require(it != inputs.end(), ErrorCode::usage,
          "'{}' holds no tensor '{}'; this component takes {}", file, name, expected_names);
  if (tensor::is_float(it->second.dtype())) diffusion::finite(it->second, name, file);
  return it->second;
}

Tensor as_f32(const Tensor& x) {
  if (tensor::is_float(x.dtype())) return ops::cast(x, DType::f32).contiguous();
  const auto whole = x.to_ints();
  const std::vector<float> values(whole.begin(), whole.end());
  return Tensor::from(std::span<const float>(values), x.shape());
}

/// Lines and columns of packed tokens: of the noise, then of each reference.
using PackedGrids = std::vector<std::array<int64_t, 2>>;

// From their positions (t, line, column, ...); those of a batch are the first sequence's.
PackedGrids packed_grids(const Tensor& ids) {
  const Tensor places = as_f32(ids.rank() == 3 ? ids.slice(0, 0, 1) : ids);
  const int64_t axes = places.rank() >= 2 ? places.size(-1) : 0;
  require(axes == 3 || axes == 4, ErrorCode::usage, "'img_ids' is {}; expected [tokens, 3 or 4]",
          ids.shape().str());
  std::map<float, std::array<int64_t, 2>> grids;  // by time
  const std::vector<float> values = places.to_floats();
  for (const float place : values)
    require(place >= 0 && place < 1 << 20, ErrorCode::usage,
            "'img_ids' holds {}; expected positions from 0 to {}", place, (1 << 20) - 1);
  for (size_t i = 0; i + 2 < values.size(); i += static_cast<size_t>(axes)) {
    std::array<int64_t, 2>& grid =
        grids.try_emplace(values[i], std::array<int64_t, 2>{1, 1}).first->second;
    for (size_t a = 0; a < 2; ++a)
      grid[a] = std::max(grid[a], static_cast<int64_t>(values[i + 1 + a]) + 1);
  }
  require(!grids.empty(), ErrorCode::usage, "'img_ids' is {}; expected positions of tokens",
          ids.shape().str());
  PackedGrids result;
  for (const auto& [time, grid] : grids) result.push_back(grid);
  return result;
}

// Tokens behind those of the noise are references: they become conditioning.
Tensor take_references(const PackedGrids& grids, const Tensor& latent, nn::TokenLayout& layout,
                       const std::string& file, Tensors& conditioning) {
  int64_t reference_tokens = 0;
  std::vector<int32_t> sizes;
  for (size_t i = 1; i < grids.size(); ++i) {
    reference_tokens += grids[i][0] * grids[i][1];
    for (const int64_t side : grids[i]) sizes.push_back(static_cast<int32_t>(side));
  }
  const int64_t batch = latent.size(0), first = layout.latent_tokens();
  require(latent.size(1) == first + reference_tokens, ErrorCode::usage,
          "'{}': {} tokens; 'img_ids' says {} and {} of references", file, latent.size(1), first,
          reference_tokens);
  if (reference_tokens == 0) return latent;
  std::vector<int32_t> all_sizes;
  for (int64_t r = 0; r < batch; ++r) all_sizes.insert(all_sizes.end(), sizes.begin(), sizes.end());
  conditioning["reference_tokens"] = latent.slice(1, first, first + reference_tokens).contiguous();
  conditioning["reference_sizes"] = Tensor::from(std::span<const int32_t>(all_sizes),
                                                 {batch, static_cast<int64_t>(sizes.size())});
  layout.extra = reference_tokens;
  return latent.slice(1, 0, first).contiguous();
}

// How a file holds latents.
nn::LatentForm form_of(const models::PipelineSpec& spec) {
  return spec.forward_names.packed ? nn::LatentForm::packed : spec.form;
}

nn::TokenLayout layout_of(const models::PipelineSpec& spec, const Tensor& latent,
                          const std::string& file, const std::string& name, const Tensors& inputs) {
  const nn::LatentForm form = form_of(spec);
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
    const auto [lines, columns] = packed_grids(ids->second).at(0);
    return spec.layout(2 * lines, 2 * columns);
  }
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(double(latent.size(1)))));
  require(side * side == latent.size(1), ErrorCode::usage,
          "'{}': {} tokens are no square; give their positions 'img_ids' [tokens, 3]", file,
          latent.size(1));
  return spec.layout(2 * side, 2 * side);
}

/// A pass of a transformer, by all ranks of the plan.
struct TransformerPass {
  runtime::ModelState& state;
  parallel::Workload workload;
  nn::Conditioning conditioning;  ///< for all sequences, as the latent
  Tensor time, latent;
  bool trace;
  std::stop_token stop;
  runtime::RunMeters meters;
  const runtime::Adapters* adapters = nullptr;
  std::vector<std::shared_ptr<const nn::Denoiser>> networks{};  ///< by rank, in this process
  Tensors traced{};  ///< at the first rank, as the result
  Tensor out{};

  void load();
  void run(comm::Communicator* world);
  Tensor compute(const nn::Denoiser& network, parallel::Setup& setup, Tensors& tensors) const;
  void show(const parallel::Setup& setup, const nn::Denoiser& network, const Tensors& tensors);
};

void TransformerPass::load() {
  const Plan& plan = state.options.plan;
  parallel::require_runnable(plan, state.geometry(), workload);
  if (plan.tensor > 1)  // reports a narrow layer before any read of weights
    state.spec->make(load::MetaWeights(), state.portion(0), state.dtype());
  networks.resize(static_cast<size_t>(plan.world()));
  state.ranks().all_or_none("computes", [&] {
    for (const int r : state.ranks().mine(plan.world()))
      networks[static_cast<size_t>(r)] = state.transformer(r, -1, &meters, adapters);
  });
}

// A rank's part, and its hidden states.
Tensor TransformerPass::compute(const nn::Denoiser& network, parallel::Setup& setup,
                                Tensors& tensors) const {
  parallel::DenoiseControl watch;
  if (state.ranks().all_here()) watch.stop = stop;
  if (trace) watch.trace = [&](const std::string& name, const Tensor& x) { tensors[name] = x; };
  const std::vector<int> own_sequences = setup.partition.sequences(setup.rank);
  const Tensor part = setup.partition.cut(latent, setup.rank);
  if (std::ssize(own_sequences) == workload.samples)
    return parallel::forward(network, conditioning, time, part, setup, watch);
  std::vector<Tensor> times{time.slice(0, 0, 0)};
  for (const int s : own_sequences) times.push_back(time.slice(0, s, s + 1));
  return parallel::forward(network, diffusion::take_sequences(conditioning, own_sequences),
                           ops::concat_rows(times), part, setup, watch);
}

// A stage has the hidden states of its own blocks only.
void TransformerPass::show(const parallel::Setup& setup, const nn::Denoiser& network,
                           const Tensors& tensors) {
  const Tensor none = Tensor::zeros({0, 1}, DType::f32);
  const auto show_tensor = [&](const std::string& name, parallel::Rows rows, int stage) {
    const auto it = tensors.find(name);
    const Tensor whole = gathered(setup, it == tensors.end() ? none : it->second, rows, stage);
    if (setup.rank != 0 || whole.size(0) == 0) return;
    const int64_t batch = workload.samples;
    traced[name] = ops::cast(whole, DType::f32);
    if (whole.size(0) % batch == 0)  // else texts are of different lengths, one behind the other
      traced[name] = traced[name].reshape({batch, whole.size(0) / batch, whole.size(1)});
  };
  show_tensor("embedding", parallel::Rows::latent, 0);
  const auto stages = parallel::blocks_of_stages(setup.plan, network.geometry().blocks);
  for (size_t s = 0; s < stages.size(); ++s)
    for (int64_t b = stages[s].begin; b < stages[s].end; ++b) {
      const std::string name = network.block_name(static_cast<int>(b));
      show_tensor(name, parallel::Rows::latent, static_cast<int>(s));
      show_tensor(name + ".context", parallel::Rows::text, static_cast<int>(s));
    }
}

void TransformerPass::run(comm::Communicator* world) {
  const nn::Denoiser& network = *networks.at(static_cast<size_t>(world ? world->rank() : 0));
  parallel::Setup setup(state.options.plan, network.geometry(), workload, world, {state.device()});
  require(setup.go_on(stop), ErrorCode::cancelled, "stopped before the first block");
  Tensors tensors;
  const Tensor whole = gathered(setup, compute(network, setup, tensors));
  if (trace) show(setup, network, tensors);
  if (setup.rank == 0) out = whole;
}

nn::Conditioning conditioning_of(const models::PipelineSpec& spec, const std::string& file,
                                 Tensors& inputs, const std::string& expected_names, int batch,
                                 const char* axis) {
  nn::Conditioning conditioning;
  for (const auto& name : spec.forward_names.conditioning)
    conditioning.tensors[name] = input(file, inputs, name, expected_names);
  for (const auto& name : spec.forward_names.optional)
    if (inputs.contains(name))
      conditioning.tensors[name] = input(file, inputs, name, expected_names);
  for (const auto& [name, x] : conditioning.tensors)
    require(!axis || (x.rank() > 0 && x.size(0) == batch), ErrorCode::usage,
            "'{}': '{}' is {}; {}= deals out {} sequences: expected [{}, ...]", file, name,
            x.shape().str(), axis, batch, batch);
  return conditioning;
}

// The timesteps of a file as its scheduler counts them.
Tensor scheduler_time(const Tensor& time, const models::PipelineSpec::ForwardNames& names) {
  const Tensor offset = Tensor::empty(time.shape(), DType::f32);
  std::fill_n(offset.data<float>(), offset.elements(), names.timestep_offset);
  return ops::blend(time, names.timestep_scale, offset, 1);
}

Tensor without_frame(const Tensor& latent, const std::string& file, const std::string& name) {
  require(latent.rank() == 5 && latent.size(2) == 1, ErrorCode::usage,
          "'{}': '{}' is {}; expected [batch, channels, 1, height, width]", file, name,
          latent.shape().str());
  return latent.contiguous().reshape(
      {latent.size(0), latent.size(1), latent.size(3), latent.size(4)});
}

Tensors run_transformer(runtime::ModelState& state, const std::string& file, Tensors& inputs,
                        bool trace, const RunControl& control, const runtime::RunMeters& meters,
                        const runtime::Adapters* adapters) {
  const models::PipelineSpec& spec = *state.spec;
  const auto names = spec.forward_names;
  std::string expected_names = names.latent + ", " + names.timestep;
  for (const auto& name : names.conditioning) expected_names += ", " + name;
  const Tensor input_latent = as_f32(input(file, inputs, names.latent, expected_names));
  Tensor latent = names.one_frame ? without_frame(input_latent, file, names.latent) : input_latent;
  nn::TokenLayout layout = layout_of(spec, latent, file, names.latent, inputs);
  Tensors fill_tensors;
  if (spec.fills_mask) latent = diffusion::take_fill(latent, layout, file, fill_tensors);
  const int batch = static_cast<int>(latent.size(0));
  Tensor time = as_f32(input(file, inputs, names.timestep, expected_names));
  require(time.elements() == batch, ErrorCode::usage, "'{}': '{}' has {} values for a batch of {}",
          file, names.timestep, time.elements(), batch);
  time = scheduler_time(time.reshape({batch}), names);
  const Plan& plan = state.options.plan;
  const char* const axis = plan.data > 1 ? "data" : plan.shard > 1 ? "shard" : nullptr;
  nn::Conditioning conditioning = conditioning_of(spec, file, inputs, expected_names, batch, axis);
  conditioning.tensors.merge(fill_tensors);
  if (const auto ids = inputs.find("img_ids"); ids != inputs.end() && spec.takes_references)
    latent = take_references(packed_grids(ids->second), latent, layout, file, conditioning.tensors);
  parallel::Workload workload;
  workload.samples = batch;
  workload.grid = layout.grid();
  workload.extra = layout.extra;
  workload.prefix = spec.prefix(conditioning);
  workload.prefixes = spec.prefixes(conditioning);
  workload.int8_scores = runtime::rules_of(state.options).int8_scores();
  const Tensor tokens = nn::tokens_of_latent(latent, layout, form_of(spec));
  TransformerPass pass{state, workload,     conditioning, time,    tokens,
                       trace, control.stop, meters,       adapters};
  pass.load();
  runtime::launch_ranks(state, pass.meters, control.stop,
                        [&](comm::Communicator* world) { pass.run(world); });
  if (!state.ranks().first()) return {};
  nn::TokenLayout prediction_layout = layout;
  prediction_layout.channels = pass.out.size(1) / (layout.token_channels() / layout.channels);
  const Tensor out = nn::latent_of_tokens(pass.out, prediction_layout, form_of(spec));
  pass.traced["out"] =
      names.one_frame ? out.reshape({out.size(0), out.size(1), 1, out.size(2), out.size(3)}) : out;
  return std::move(pass.traced);
}

/// Settings of a VAE's run: tiles or ranks, and the observer.
struct VaeRun {
  std::optional<models::Tiling> tiles;
  models::VaeWatch watch;
  const runtime::RunMeters& meters;
  std::stop_token stop;
  int64_t chunk = 0;
};

// The result of the first rank with the images, or of a single rank. `action`:
// "decodes".
Tensor on_bands(
    const runtime::ModelState& state, const VaeRun& run, const char* action,
    const std::function<Tensor(nn::Spatial& spatial, const models::VaeWatch& watch)>& pass) {
  Tensor out;
  const auto share = [&](nn::Spatial& spatial, comm::Communicator* ranks) {
    const bool first = !ranks || ranks->rank() == 0;
    models::VaeWatch watch = run.watch;
    if (!first && watch.trace) watch.trace = [](const std::string&, const Tensor&) {};
    try {
      const Tensor result = pass(spatial, watch);
      if (first) out = result;
    } catch (const std::exception& e) {
      if (!ranks) throw;
      cluster::end_all(*ranks, ranks->in_world(ranks->rank()), e, action);
    }
  };
  diffusion::launch_bands(state, run.meters, run.stop, run.chunk, share);
  return out;
}

// Empty on other processes than the first.
void numbers_of_vae(const Tensor& result) {
  if (result.defined()) ops::require_finite(result, "the VAE");
}

Tensor run_decoder(const runtime::ModelState& state, const Tensor& latent, const VaeRun& run) {
  std::unique_ptr<models::VaeDecoder> vae;
  state.ranks().all_or_none("decodes", [&] {
    vae = state.load_vae();
    if (state.options.plan.vae > 1) diffusion::derive_filters(state, *vae, latent.size(1));
  });
  const auto whole = [&](const Tensor& z) {
    return on_bands(state, run, "decodes",
                    [&](nn::Spatial& spatial, const models::VaeWatch& watch) {
                      return runtime::on_host(vae->decode(z.to(state.device()), spatial, watch));
                    });
  };
  const Tensor result = run.tiles
                            ? models::decode_tiles(latent, state.vae_factor(), *run.tiles, whole)
                            : whole(latent);
  state.ranks().all_or_none("decodes", [&] { numbers_of_vae(result); });
  return result;
}

// Mean and log variance in sequence: [batch, 2 * channels, ...].
Tensor joined(const models::VaeMoments& m) {
  const int64_t batch = m.mean.size(0), width = m.mean.elements() / batch;
  std::vector<int64_t> sizes(m.mean.shape().begin(), m.mean.shape().end());
  sizes[1] *= 2;
  return ops::concat_columns({m.mean.reshape({batch, width}), m.logvar.reshape({batch, width})})
      .reshape(tensor::Shape(sizes));
}

Tensor run_encoder(const runtime::ModelState& state, const Tensor& images, const VaeRun& run) {
  std::unique_ptr<models::VaeEncoder> vae;
  state.ranks().all_or_none("encodes", [&] { vae = state.load_vae_encoder(); });
  const auto whole = [&](const Tensor& x) {
    return on_bands(
        state, run, "encodes", [&](nn::Spatial& spatial, const models::VaeWatch& watch) {
          return runtime::on_host(joined(vae->encode(x.to(state.device()), spatial, watch)));
        });
  };
  const Tensor result = run.tiles
                            ? models::encode_tiles(images, state.vae_factor(), *run.tiles, whole)
                            : whole(images);
  state.ranks().all_or_none("encodes", [&] { numbers_of_vae(result); });
  return result;
}

// For a plan with shared images of this many latent lines.
void check_bands(const Plan& plan, int64_t lines, bool tiles) {
  std::vector<std::string> errors = problems(plan, plan.world());
  for (std::string& problem : parallel::band_problems(plan, lines))
    errors.push_back(std::move(problem));
  require(errors.empty(), ErrorCode::plan, "the plan cannot run: {}", fmt::join(errors, "; "));
  require(plan.vae == 1 || !tiles, ErrorCode::plan, admission::kTilesOrBands, plan.vae);
}

Tensors run_vae(const runtime::ModelState& state, const std::string& file, Tensors& inputs,
                const ForwardRequest& request, const VaeRun& plain) {
  const bool decode = request.component == ModelPart::vae_decode;
  const char* const other = decode ? "z" : "x";
  const Tensor sample = as_f32(input(
      file, inputs, inputs.contains(other) ? other : "sample",
      decode ? "sample [batch, channels, height, width]" : "sample [batch, 3, height, width]"));
  require(sample.rank() >= 4 && sample.elements() > 0, ErrorCode::usage,
          "'{}': the sample is {}; expected batch, channels, and sides above 0", file,
          sample.shape().str());
  check_bands(state.options.plan, sample.size(-2) / (decode ? 1 : state.vae_factor()),
              request.vae_tiling == VaeTiling::on);
  Tensors outputs;
  VaeRun run = plain;
  run.chunk = diffusion::checked_chunk(request.vae_chunk,
                                       sample.size(-2) * (decode ? state.vae_factor() : 1));
  if (request.vae_tiling == VaeTiling::on)
    run.tiles = admission::vae_tiles(state, request.vae_tile);
  require(!run.tiles || !request.trace, ErrorCode::usage,
          "there is no `trace` of tiles; leave out `vae_tiling`");
  if (request.trace)
    run.watch.trace = [&](const std::string& name, const Tensor& x) {
      outputs[name] = runtime::on_host(ops::cast(x, DType::f32));
    };
  if (decode) {
    outputs["out"] = run_decoder(state, sample, run);
    return outputs;
  }
  const Tensor moments = run_encoder(state, sample, run);
  if (!state.ranks().first()) return {};
  const int64_t channels = moments.size(1) / 2;
  outputs["out"] = outputs["mean"] = moments.slice(1, 0, channels).contiguous();
  outputs["logvar"] = moments.slice(1, channels, 2 * channels).contiguous();
  return outputs;
}

// Runs a transformer, a VAE or a text encoder.
Tensors run_part(runtime::ModelState& state, const ForwardRequest& request, Tensors& inputs,
                 const RunControl& control, const runtime::RunMeters& meters,
                 const runtime::Adapters* adapters) {
  const std::string file = request.inputs.empty() ? "the request" : request.inputs;
  if (request.component >= ModelPart::text_encoder)
    return diffusion::forward_text(state, word_of(request.component), inputs, request.trace,
                                   control, adapters);
  return request.component == ModelPart::transformer
             ? run_transformer(state, file, inputs, request.trace, control, meters, adapters)
             : run_vae(state, file, inputs, request, {{}, {}, meters, control.stop});
}

// The same on meta: the memory of this process, with its inputs; for a single rank with
// traces.
diffusion::MemoryNeed dry_run_part(const runtime::ModelState& state, ForwardRequest request,
                                   const Tensors& inputs, const runtime::Adapters* adapters) {
  runtime::ModelState stage;
  runtime::copy_for_dry_run(state, state.options, stage);
  const runtime::RunMeters meters(stage.workers.ranks.size());
  const tensor::BindScope bind(stage.workers.scope(-1, &meters));
  Tensors shapes;
  for (const auto& [name, x] : inputs) {
    const bool read = name.ends_with("_ids") || name.find("mask") != std::string::npos;
    shapes[name] = read || !tensor::is_float(x.dtype()) ? x : x.to(tensor::Device::meta);
  }
  const int64_t input_bytes = meters.memory->current();
  const bool over_ranks = state.options.plan.world() > 1;
  request.trace = request.trace && !over_ranks;
  run_part(stage, request, shapes, {.stop = base::current_stop()}, meters, adapters);
  const MemoryPeaks peak = runtime::peaks_of(*meters.memory);
  if (!over_ranks) return {peak.weights, peak.activations, peak.total};
  admission::DryRun prediction;
  for (size_t r = 0; r < meters.ranks.size(); ++r)
    prediction.ranks.push_back(admission::predicted(
        runtime::work_of(stage.workers.scope(static_cast<int>(r), &meters), 0), 0, 0, 1));
  if (request.component != ModelPart::transformer) {  // a VAE's weights, shared by all ranks
    std::vector<int64_t> rank_bytes;
    for (const Inspection::Rank& rank : prediction.ranks) rank_bytes.push_back(rank.total);
    const int64_t weights = meters.memory->peak(tensor::MemoryClass::weights);
    const int64_t activations = state.ranks().bytes_here(rank_bytes) + input_bytes;
    return {weights, activations, weights + activations};
  }
  const auto weights = stage.weights_of("transformer");
  admission::add_process(
      state.options,
      [&](int rank) -> std::shared_ptr<const void> {
        return stage.make_transformer(rank, -1, weights, adapters);
      },
      prediction);
  return {prediction.weights, prediction.process - prediction.weights,
          prediction.process + input_bytes};
}

// The first tiles within a VAE's memory; "": none.
std::string tiles_that_fit(const runtime::ModelState& state, ForwardRequest request,
                           const Tensors& inputs, const admission::MemoryLimit& room) {
  const bool vae =
      request.component == ModelPart::vae_decode || request.component == ModelPart::vae_encode;
  if (!vae || request.trace || state.options.plan.vae > 1) return "";
  request.vae_tiling = VaeTiling::on;
  for (const int64_t pixels : {0, 512, 256, 128}) {
    request.vae_tile = pixels;
    const int64_t bytes = dry_run_part(state, request, inputs, nullptr).peak;
    if (bytes <= room.bytes)
      return fmt::format("`vae_tiling` {} needs {}", pixels == 0 ? "on" : std::to_string(pixels),
                         admission::amount(double(bytes)));
  }
  return "";
}

void admit(const runtime::ModelState& state, const ForwardRequest& request, const Tensors& inputs,
           const runtime::Adapters* adapters) {
  const admission::MemoryLimit room = admission::room_of(state);
  const diffusion::MemoryNeed need = dry_run_part(state, request, inputs, adapters);
  if (need.peak + state.loaded.kept.bytes() > room.bytes) state.loaded.kept.release();
  if (need.peak <= room.bytes) return;
  std::string remedy = tiles_that_fit(state, request, inputs, room);
  if (remedy.empty()) remedy = "give fewer or smaller tensors";
  if (state.options.memory_budget > 0)
    remedy = fmt::format("it fits into {}; else {}", admission::budget_of(need.peak), remedy);
  fail(ErrorCode::memory, "{}",
       admission::too_large(fmt::format("{} of these tensors", word_of(request.component)),
                            need.peak, need.weights, room, remedy));
}

void check_output(const runtime::ModelState& state, const ForwardRequest& request) {
  std::vector<RunInput> inputs{{"`inputs`", request.inputs}};
  for (const Lora& lora : request.loras) inputs.push_back({"`loras`", lora.file});
  if (state.ranks().first())
    check_files({state.folder.path,
                 inputs,
                 {{"`outputs`", request.outputs, FileKind::tensors}},
                 request.overwrite,
                 state.files});
}

}  // namespace

NamedTensors forward(runtime::ModelState& state, const ForwardRequest& request,
                     const RunControl& control) {
  check_request(request);
  const cluster::ExclusiveRequest exclusive(state.ranks(), state.name);
  const base::BindStop stop(control.stop);
  const std::string component = word_of(request.component);
  const bool transformer = request.component <= ModelPart::model;
  const bool language = transformer && state.language != nullptr;
  const bool layer = request.component == ModelPart::moe_layer;
  const bool decode = request.component == ModelPart::vae_decode;
  const bool text = request.component >= ModelPart::text_encoder;
  const std::string part = transformer ? "transformer" : text || layer ? component : "vae";
  const bool bands = !text && !layer && !transformer && state.options.plan.vae > 1;
  require(transformer || layer || bands || to_string(state.options.plan).empty(), ErrorCode::plan,
          "forward spreads transformers and language models over ranks; a {} runs on one: leave "
          "out `plan` and `ranks`{}",
          component, text ? "" : ", or add vae= to share its images");
  require(!state.options.plan.vae_apart, ErrorCode::plan,
          "vae=+{0} decodes while others denoise, and forward runs one part: use vae={0} on the "
          "ranks of an axis, or leave it out",
          state.options.plan.vae);
  if (state.folder.absent.contains(part)) state.folder.component(part);
  require(language      ? true
          : transformer ? state.spec.has_value()
          : layer       ? state.layer.has_value()
          : text        ? state.folder.has(component)
                        : state.has_vae(),
          ErrorCode::usage, "'{}' has no {}; give a folder that has one", state.name,
          part == "vae" ? "VAE" : part);
  state.ranks().require_same([&] { return fingerprint_of(state, request); });
  check_output(state, request);
  if (control.on_note && !text && !layer) {
    const std::string note = language      ? state.language->check(state.dtype())
                             : transformer ? state.check_transformer()
                             : decode      ? state.check_vae()
                                           : "";
    if (!note.empty()) control.on_note(note);
  }
  const runtime::RunMeters meters(state.workers.ranks.size());
  const tensor::BindScope bind(state.workers.scope(-1, &meters));
  Tensors inputs = inputs_of(request);
  const auto loras = runtime::load_adapters(state, request, control);
  if (!layer && !language) admit(state, request, inputs, loras.get());
  const auto run = [&] { return run_part(state, request, inputs, control, meters, loras.get()); };
  const Tensors outputs = layer      ? forward_moe_layer(state, inputs, request, control)
                          : language ? forward_tokens(state, inputs, request.trace, control.stop)
                                     : run();
  require(!control.stop.stop_requested(), ErrorCode::cancelled,
          "stopped before the result of '{}' was there", component);
  const std::string beyond =
      admission::beyond_budget(state.options, runtime::peaks_of(*meters.memory), {});
  if (control.on_note && !beyond.empty()) control.on_note(beyond);
  if (!state.ranks().first()) return {};
  NamedTensors result;
  for (const auto& [name, x] : outputs) result[name] = runtime::data_of(x);
  if (!request.outputs.empty())
    load::write_safetensors(request.outputs, outputs, runtime::tensors_metadata(FileKind::tensors));
  return result;
}

}  // namespace tessera::pipeline
