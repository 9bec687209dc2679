#include "models/cogvideox.h"

#include <algorithm>

#include "base/fail.h"
#include "nn/positions.h"

namespace tessera::models {
namespace {

struct CogContext : nn::Context {
  Tensor text;              // [batch * length, hidden]
  Tensor positions;         // f32 [tokens of a sequence, hidden], or undefined
  ops::RotaryTable angles;  // tokens of each sequence, or undefined
  int64_t length = 0;
};

nn::Geometry geometry_of(const CogVideoXConfig& c) {
  nn::Geometry g = dit_geometry(c.num_layers, c.num_attention_heads, c.attention_head_dim, true);
  g.channels_in = c.in_channels;
  g.channels_out = c.out_channels;
  g.patch_size = {std::max<int64_t>(c.patch_size_t, 1), c.patch_size, c.patch_size};
  return g;
}

}  // namespace

CogVideoX::CogVideoX(const CogVideoXConfig& config, const nn::Weights& weights,
                     const nn::Portion& portion, DType dtype)
    : config_(config),
      dtype_(dtype),
      geometry_(geometry_of(config).of(weights.shard())),
      blocks_(portion.blocks) {
  const int64_t d = config.hidden(), time = config.time_embed_dim, p = config.patch_size;
  const int64_t volume = geometry_.patch_size[0] * p * p;
  if (portion.conditioning)
    time_ = Mlp(weights, "time_embedding", d, time, time, ops::Activation::silu, DType::f32);
  if (portion.embed) {
    const int64_t in = config.in_channels;
    const Tensor patch = config.patch_size_t
                             ? weights.get("patch_embed.proj.weight", {d, in * volume})
                             : weights.get("patch_embed.proj.weight", {d, in, p, p});
    patch_ = ops::pack_weight(patch.reshape({d, in * volume}), dtype);
    // The flag only concerns CogVideoX 1.0. In 1.5, patches span frames and always have a bias.
    if (config.patch_bias || config.patch_size_t)
      patch_bias_ = weights.vector("patch_embed.proj.bias", d);
    text_ = nn::Linear(weights, "patch_embed.text_proj", d, config.text_embed_dim, dtype);
  }
  if (portion.head) {
    norm_final_ = load_norm(weights, "norm_final");
    norm_out_ = load_norm(weights, "norm_out.norm");
    final_modulation_ = nn::Linear(weights, "norm_out.linear", 2 * d, time, dtype);
    head_ = PatchHead(weights, volume, config.out_channels, d, false, dtype);
  }
  for (int64_t b = blocks_.begin; b < blocks_.end; ++b) layers_.push_back(load_block(weights, b));
}

TokenNorm CogVideoX::load_norm(const nn::Weights& weights, const std::string& name) const {
  const float eps = static_cast<float>(config_.norm_eps);
  if (!config_.norm_elementwise_affine) return {{}, {}, eps};
  return TokenNorm::load(weights, name, config_.hidden(), eps);
}

CogVideoX::Block CogVideoX::load_block(const nn::Weights& weights, int64_t index) const {
  const int64_t d = config_.hidden(), dim = config_.attention_head_dim;
  const std::string name = fmt::format("transformer_blocks.{}.", index),
                    attention = name + "attn1.";
  auto linear = [&](const char* part) {
    return nn::Linear(weights, attention + part, d, d, dtype_,
                      {.bias = config_.attention_bias, .split = split_heads(d, dim)});
  };
  Block block;
  block.modulation1 =
      nn::Linear(weights, name + "norm1.linear", 6 * d, config_.time_embed_dim, dtype_);
  block.modulation2 =
      nn::Linear(weights, name + "norm2.linear", 6 * d, config_.time_embed_dim, dtype_);
  block.norm1 = load_norm(weights, name + "norm1.norm");
  block.norm2 = load_norm(weights, name + "norm2.norm");
  block.heads = {{linear("to_q"), HeadNorm::layer(weights, attention + "norm_q", dim)},
                 {linear("to_k"), HeadNorm::layer(weights, attention + "norm_k", dim)},
                 linear("to_v")};
  block.out = nn::Linear(weights, attention + "to_out.0", d, d, dtype_,
                         {.split = nn::Split::inputs({{d, dim}})});
  block.mlp = Mlp::of_block(weights, name + "ff", d, 4 * d, dtype_);
  return block;
}

// A quarter of the channels encodes the frame, the rest column and line.
Tensor CogVideoX::sincos_positions(const nn::TokenShape& shape) const {
  const int64_t d = config_.hidden();
  const double space = 1 / config_.spatial_interpolation_scale;
  const double time = 1 / config_.temporal_interpolation_scale;
  const Tensor grid = nn::sincos_grid(nn::even_places(shape.grid[1], 0, space),
                                      nn::even_places(shape.grid[2], 0, space), 3 * d / 4);
  const Tensor frames = nn::sincos_axis(nn::even_places(shape.grid[0], 0, time), d / 4);
  std::vector<int32_t> frame_of, place_of;
  for (int64_t t = 0; t < shape.tokens(); ++t) {
    frame_of.push_back(static_cast<int32_t>(t / grid.size(0)));
    place_of.push_back(static_cast<int32_t>(t % grid.size(0)));
  }
  return ops::concat_columns({ops::gather_rows(frames, frame_of, DType::f32),
                              ops::gather_rows(grid, place_of, DType::f32)});
}

ops::RotaryTable CogVideoX::rotary_positions(const nn::TokenShape& shape,
                                             tensor::Device device) const {
  const int64_t height = shape.grid[1], width = shape.grid[2], dim = config_.attention_head_dim;
  nn::RotaryAxis time{{}, dim / 8}, down{{}, dim / 8 * 3 / 2}, across{{}, dim / 8 * 3 / 2};
  nn::GridRegion on{0, 0, height, width};
  if (config_.patch_size_t == 0)
    on = nn::centred_region(height, width, config_.sample_height / config_.patch_size,
                            config_.sample_width / config_.patch_size);
  const auto top = nn::spread_places(on.top, on.bottom, height);
  const auto left = nn::spread_places(on.left, on.right, width);
  for (int64_t t = 0; t < shape.grid[0]; ++t)
    for (double y : top)
      for (double x : left) {
        time.places.push_back(double(t));
        down.places.push_back(y);
        across.places.push_back(x);
      }
  return nn::rotary_axes({time, down, across}, device);
}

nn::ContextPtr CogVideoX::prepare(const nn::Conditioning& conditioning,
                                  const nn::TokenShape& shape) const {
  auto context = std::make_shared<CogContext>();
  const Tensor text = text_input(conditioning, "encoder_hidden_states", shape.batch,
                                 config_.text_embed_dim, &context->length);
  require(context->length == shape.prefix, ErrorCode::usage,
          "'encoder_hidden_states' has {} tokens, the request {}", context->length, shape.prefix);
  if (text_.weight()) context->text = text_(ops::cast(text, dtype_));
  if (config_.rotary)
    context->angles = rotary_positions(shape, text.device());
  else if (text.is_meta())
    context->positions =
        Tensor::empty({shape.tokens(), config_.hidden()}, DType::f32, text.device());
  else
    context->positions = sincos_positions(shape).to(text.device());
  return context;
}

nn::PlacementPtr CogVideoX::place(const nn::Context& context, const nn::TokenView& view) const {
  const auto& of = dynamic_cast<const CogContext&>(context);
  const Tensor& table = config_.rotary ? of.angles.cos : of.positions;
  auto placement = std::make_shared<DitPlacement>(of, view, table.device());
  if (config_.rotary) placement->angles = nn::take_angles(of.angles, view.body);
  return placement;
}

nn::StepContextPtr CogVideoX::at(const nn::Context&, const Tensor& timestep) const {
  auto step = std::make_shared<DitStep>();
  const ops::TimestepOptions waves{.sin_first = !config_.flip_sin_to_cos,
                                   .downscale = static_cast<float>(config_.freq_shift)};
  step->condition = ops::silu(time_(ops::timestep_embedding(timestep, config_.hidden(), waves)));
  if (final_modulation_.weight()) step->final_modulation = final_modulation_(step->condition);
  return step;
}

nn::Hidden CogVideoX::embed(const nn::Placement& placement, const Tensor& latent) const {
  const CogContext& context = dit(placement).in<CogContext>();
  Tensor places;
  if (context.positions.defined())
    places = nn::take_tokens(context.positions, 0, placement.view.body);
  const Tensor body =
      ops::matmul(latent, patch_,
                  {.bias = patch_bias_, .residual = places, .out = dtype_, .out_as_input = false});
  return {.tokens = {.prefix = nn::take_tokens(context.text, context.length, placement.view.prefix),
                     .body = body},
          .skips = {}};
}

void CogVideoX::block(int index, const nn::StepContext& step, const nn::Placement& placement,
                      nn::Hidden& hidden, const nn::Seams& seams) const {
  const Block& w = layers_.at(static_cast<size_t>(index - blocks_.begin));
  const auto& p = dit(placement);
  const auto& modulations = dit(step).of(index, {&w.modulation1, &w.modulation2});
  const Tensor &m = modulations[0], &n = modulations[1];
  const int64_t d = config_.hidden();
  Tensor &x = hidden.tokens.body, &c = hidden.tokens.prefix;

  const int64_t text = c.size(0), all = text + x.size(0);
  nn::Qkv heads;
  if (seams.attention.needs_heads(index)) {
    heads = w.heads.room(x, all);
    Projections::both(w.heads, w.heads,
                      {w.norm1(c, part(m, 3, d), part(m, 4, d), p.text_sequences),
                       w.norm1(x, part(m, 0, d), part(m, 1, d), p.sequences)},
                      p.angles, heads);
  }
  ops::MatmulGroup group;
  const nn::Joint attention = apart(seams.attention.attend(index, p.view, heads), text);
  x = w.out(attention.body, gated(m, 2, p.sequences, x, &group), seams.reduce);
  c = w.out(attention.prefix, gated(m, 5, p.text_sequences, c, &group), seams.reduce);
  group.run();
  const Tensor mlp_input = w.norm2(x, part(n, 0, d), part(n, 1, d), p.sequences);
  const Tensor text_mlp_input = w.norm2(c, part(n, 3, d), part(n, 4, d), p.text_sequences);
  hidden.tokens =
      Mlp::both(w.mlp, w.mlp, {text_mlp_input, mlp_input, {}}, gated(n, 5, p.text_sequences, c),
                gated(n, 2, p.sequences, x), seams.reduce);
}

Tensor CogVideoX::first_input(const nn::StepContext& step, const nn::Placement& placement,
                              const nn::Hidden& hidden, const nn::Seams&) const {
  const Block& w = layers_.at(static_cast<size_t>(-blocks_.begin));
  const Tensor& m = dit(step).of(0, {&w.modulation1, &w.modulation2})[0];
  const int64_t d = config_.hidden();
  return w.norm1(hidden.tokens.body, part(m, 0, d), part(m, 1, d), dit(placement).sequences);
}

Tensor CogVideoX::head(const nn::StepContext& step, const nn::Placement& placement,
                       const nn::Hidden& hidden) const {
  const Tensor& m = dit(step).final_modulation;
  const auto& sequences = dit(placement).sequences;
  const int64_t d = config_.hidden();
  return head_(norm_out_(norm_final_(hidden.tokens.body), part(m, 0, d), part(m, 1, d), sequences));
}

}  // namespace tessera::models
