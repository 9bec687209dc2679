#include "models/flux.h"

#include "base/fail.h"
#include "models/reference_tokens.h"
#include "nn/positions.h"
#include "ops/elementwise.h"

namespace tessera::models {
namespace {

constexpr int64_t kWaves = 256;  // channels of a sinusoidal embedding

struct FluxContext : nn::Context {
  Tensor text;              // [batch * length, hidden]
  Tensor fixed;             // f32 [batch, hidden]: pooled text and guidance
  ops::RotaryTable angles;  // a sequence has angles for text, then image and references
  Tensor references;        // f32 [batch * their tokens, out_channels]
  Tensor fill;              // f32 [batch * tokens, fill_channels]
  nn::TokenShape shape;
  int64_t length = 0;
};

struct FluxPlacement : DitPlacement {
  using DitPlacement::DitPlacement;
  ops::RowMap both_rows;  // text tokens, then image tokens
  ops::RotaryTable both_angles;
  ReferenceRows references;
};

nn::Geometry geometry_of(const FluxConfig& c) {
  nn::Geometry g = dit_geometry(c.blocks(), c.num_attention_heads, c.attention_head_dim, true);
  g.channels_in = c.out_channels / 4;
  g.channels_out = c.out_channels / 4;
  g.patch_size = {1, 2, 2};
  return g;
}

// As diffusers numbers them: 0, line, column; of the i-th reference i, line, column.
ops::RotaryTable angles_of(const FluxConfig& config, const nn::TokenShape& shape,
                           const References& references, tensor::Device device) {
  std::vector<nn::RotaryAxis> axes(3);
  for (size_t i = 0; i < 3; ++i) {
    axes[i].pairs = config.axes_dims_rope[i] / 2;
    axes[i].places.assign(static_cast<size_t>(shape.prefix), 0);  // where nothing turns
  }
  const auto add_grid = [&](int64_t image, int64_t lines, int64_t columns) {
    for (int64_t y = 0; y < lines; ++y)
      for (int64_t x = 0; x < columns; ++x) {
        axes[0].places.push_back(double(image));
        axes[1].places.push_back(double(y));
        axes[2].places.push_back(double(x));
      }
  };
  add_grid(0, shape.grid[1], shape.grid[2]);
  for (size_t i = 0; i < references.sizes.size(); ++i)
    add_grid(static_cast<int64_t>(i) + 1, references.sizes[i][0], references.sizes[i][1]);
  // On meta nothing says the sizes of references.
  for (nn::RotaryAxis& axis : axes)
    axis.places.resize(static_cast<size_t>(shape.prefix + shape.tokens()), 0);
  return nn::rotary_axes(axes, device);
}

// [batch * tokens, fill_channels]; zeros behind those of the latent.
Tensor fill_of(const nn::Conditioning& conditioning, const nn::TokenShape& shape, int64_t channels,
               tensor::Device device) {
  if (device == tensor::Device::meta)
    return Tensor::empty({shape.batch * shape.tokens(), channels}, DType::f32, device);
  int64_t count = 0;
  const Tensor fill = text_input(conditioning, "fill_tokens", shape.batch, channels, &count);
  require(count == shape.tokens(), ErrorCode::usage, "'fill_tokens' has {} tokens, the request {}",
          count, shape.tokens());
  return fill;
}

}  // namespace

Flux::Flux(const FluxConfig& config, const nn::Weights& weights, const nn::Portion& portion,
           DType dtype)
    : config_(config),
      dtype_(dtype),
      geometry_(geometry_of(config).of(weights.shard())),
      blocks_(portion.blocks) {
  const int64_t d = config.hidden();
  const auto embedder = [&](const char* name, int64_t in) {
    return Mlp(weights, std::string("time_text_embed.") + name, in, d, d, ops::Activation::silu,
               DType::f32);
  };
  if (portion.conditioning) {
    time_ = embedder("timestep_embedder", kWaves);
    if (config.guidance_embeds) guidance_ = embedder("guidance_embedder", kWaves);
    pooled_ = embedder("text_embedder", config.pooled_projection_dim);
  }
  if (portion.embed) {
    image_in_ = nn::Linear(weights, "x_embedder", d, config.in_channels, dtype);
    text_in_ = nn::Linear(weights, "context_embedder", d, config.joint_attention_dim, dtype);
  }
  if (portion.head) {
    final_modulation_ = nn::Linear(weights, "norm_out.linear", 2 * d, d, dtype);
    head_ = PatchHead(weights, 4, config.out_channels / 4, d, false, dtype);
  }
  for (int64_t b = blocks_.begin; b < blocks_.end; ++b)
    layers_.push_back(b < config.num_layers ? load_double(weights, b)
                                            : load_single(weights, b - config.num_layers));
}

std::string Flux::block_name(int index) const {
  return index < config_.num_layers ? fmt::format("block.{}", index)
                                    : fmt::format("single_block.{}", index - config_.num_layers);
}

Projections Flux::load_heads(const nn::Weights& weights, const std::string& name, bool text) const {
  const int64_t d = config_.hidden(), dim = config_.attention_head_dim;
  auto linear = [&](const char* which) {
    const std::string part = text ? fmt::format("add_{}_proj", which) : fmt::format("to_{}", which);
    return nn::Linear(weights, name + part, d, d, dtype_, {.split = split_heads(d, dim)});
  };
  return {{linear("q"), HeadNorm::rms(weights, name + (text ? "norm_added_q" : "norm_q"), dim)},
          {linear("k"), HeadNorm::rms(weights, name + (text ? "norm_added_k" : "norm_k"), dim)},
          linear("v")};
}

Flux::Block Flux::load_double(const nn::Weights& weights, int64_t index) const {
  const int64_t d = config_.hidden();
  const std::string name = fmt::format("transformer_blocks.{}.", index);
  const auto stream = [&](bool text) -> DoubleBlock::Stream {
    return {load_heads(weights, name + "attn.", text),
            nn::Linear(weights, name + (text ? "attn.to_add_out" : "attn.to_out.0"), d, d, dtype_,
                       {.split = nn::Split::inputs({{d, config_.attention_head_dim}})}),
            Mlp::of_block(weights, name + (text ? "ff_context" : "ff"), d, 4 * d, dtype_)};
  };
  const auto modulation = [&](const char* part) {
    return nn::Linear(weights, name + part, 6 * d, d, dtype_);
  };
  Block block;
  block.both = {stream(false), stream(true), {}};
  block.image_modulation = modulation("norm1.linear");
  block.text_modulation = modulation("norm1_context.linear");
  return block;
}

Flux::Block Flux::load_single(const nn::Weights& weights, int64_t index) const {
  const int64_t d = config_.hidden();
  const std::string name = fmt::format("single_transformer_blocks.{}.", index);
  Block block;
  block.heads = load_heads(weights, name + "attn.", false);
  block.modulation = nn::Linear(weights, name + "norm.linear", 3 * d, d, dtype_);
  block.widen = nn::Linear(weights, name + "proj_mlp", 4 * d, d, dtype_,
                           {.split = nn::Split::outputs({{4 * d}})});
  block.out = nn::Linear(weights, name + "proj_out", d, 5 * d, dtype_,
                         {.split = nn::Split::inputs({{d, config_.attention_head_dim}, {4 * d}})});
  return block;
}

nn::ContextPtr Flux::prepare(const nn::Conditioning& conditioning,
                             const nn::TokenShape& shape) const {
  auto context = std::make_shared<FluxContext>();
  const Tensor text = text_input(conditioning, "encoder_hidden_states", shape.batch,
                                 config_.joint_attention_dim, &context->length);
  require(context->length == shape.prefix, ErrorCode::usage,
          "'encoder_hidden_states' has {} tokens, the request {}", context->length, shape.prefix);
  context->fixed = pooled_(
      batch_input(conditioning, "pooled_projections", shape.batch, config_.pooled_projection_dim));
  if (config_.guidance_embeds) {
    const Tensor scale =
        batch_input(conditioning, "guidance", shape.batch, 1).reshape({shape.batch});
    context->fixed = guidance_(ops::timestep_embedding(ops::scale(scale, 1000), kWaves),
                               {.residual = context->fixed});
  }
  if (text_in_.weight()) context->text = text_in_(ops::cast(text, dtype_));
  const References references = references_of(conditioning, shape, config_.out_channels);
  context->references = references.tokens;
  context->shape = shape;
  if (config_.fill_channels() > 0)
    context->fill = fill_of(conditioning, shape, config_.fill_channels(), text.device());
  context->angles = angles_of(config_, shape, references, text.device());
  return context;
}

nn::PlacementPtr Flux::place(const nn::Context& context, const nn::TokenView& view) const {
  const auto& of = dynamic_cast<const FluxContext&>(context);
  auto placement = std::make_shared<FluxPlacement>(of, view, of.fixed.device());
  nn::Segments segments;  // indices into a sequence's table
  const auto add = [&](const nn::Segment& s, int64_t first) {
    segments.push_back({s.sequence, {first + s.ids.begin, first + s.ids.end}});
  };
  for (const nn::Segment& s : view.prefix) add(s, s.ids.begin < 0 ? of.length : 0);
  for (const nn::Segment& s : view.body) add(s, of.length);
  placement->both_rows = ops::RowMap(nn::sequences_of(segments), of.fixed.device());
  placement->both_angles = nn::take_angles(of.angles, segments);
  const auto& [cos, sin] = placement->both_angles;
  const int64_t text = nn::token_count(view.prefix);
  placement->angles = {apart(cos, text).body, apart(sin, text).body};
  placement->references = reference_rows(of.shape, view.body);
  return placement;
}

nn::StepContextPtr Flux::at(const nn::Context& context, const Tensor& timestep) const {
  auto step = std::make_shared<DitStep>();
  // The pipeline divides by 1000 and the model multiplies again, both in f32.
  step->condition =
      ops::silu(time_(ops::timestep_embedding(ops::scale(timestep, 1000, 1000), kWaves),
                      {.residual = dynamic_cast<const FluxContext&>(context).fixed}));
  if (final_modulation_.weight()) step->final_modulation = final_modulation_(step->condition);
  return step;
}

nn::Hidden Flux::embed(const nn::Placement& placement, const Tensor& latent) const {
  const auto& p = dynamic_cast<const FluxPlacement&>(placement);
  const FluxContext& context = p.in<FluxContext>();
  Tensor tokens = with_references(latent, context.references, p.references);
  if (context.fill.defined())
    tokens = ops::concat_columns(
        {tokens, nn::take_tokens(context.fill, context.shape.tokens(), p.view.body)});
  return {.tokens = {.prefix = nn::take_tokens(context.text, context.length, p.view.prefix),
                     .body = image_in_(tokens, {.out = dtype_, .out_as_input = false})},
          .skips = {}};
}

void Flux::block(int index, const nn::StepContext& step, const nn::Placement& placement,
                 nn::Hidden& hidden, const nn::Seams& seams) const {
  const DitStep& at = dit(step);
  hidden.tokens = index < config_.num_layers
                      ? double_block(index, at, placement, hidden.tokens, seams)
                      : single_block(index, at, placement, hidden.tokens, seams);
}

nn::Joint Flux::double_block(int site, const DitStep& step, const nn::Placement& placement,
                             const nn::Joint& streams, const nn::Seams& seams) const {
  const Block& w = layers_.at(static_cast<size_t>(site - blocks_.begin));
  const auto& modulations = step.of(site, {&w.image_modulation, &w.text_modulation});
  return w.both(site, {.prefix = modulations[1], .body = modulations[0], .both = {}},
                dit(placement), streams, seams);
}

// Text and image share weights in these blocks, so both stay joined in a tensor from the first of
// these blocks to the last.
nn::Joint Flux::single_block(int site, const DitStep& step, const nn::Placement& placement,
                             const nn::Joint& streams, const nn::Seams& seams) const {
  const Block& w = layers_.at(static_cast<size_t>(site - blocks_.begin));
  const auto& p = dynamic_cast<const FluxPlacement&>(placement);
  const Tensor& m = step.of(site, {&w.modulation})[0];
  const int64_t d = config_.hidden();
  const Tensor x = together(streams);

  const Tensor before = TokenNorm()(x, part(m, 0, d), part(m, 1, d), p.both_rows);
  nn::Qkv qkv;
  if (seams.attention.needs_heads(site)) qkv = w.heads(before, p.both_angles);
  const Tensor attention = seams.attention.attend(site, p.view, qkv);
  const int64_t heads = attention.size(1), all = heads + w.widen.weight()->n;
  const Tensor wide = Tensor::empty({x.size(0), all}, x.dtype(), x.device());
  tensor::copy_into(wide.slice(1, 0, heads), attention);
  w.widen(before, {.activation = ops::Activation::gelu_tanh, .into = wide.slice(1, heads, all)});
  return apart(w.out(wide, gated(m, 2, p.both_rows, x), seams.reduce), streams.prefix.size(0));
}

Tensor Flux::first_input(const nn::StepContext& step, const nn::Placement& placement,
                         const nn::Hidden& hidden, const nn::Seams&) const {
  require(config_.num_layers > 0, ErrorCode::usage,
          "`cache` teacache: this model has no double blocks");
  const Block& w = layers_.at(static_cast<size_t>(-blocks_.begin));
  const Tensor& m = dit(step).of(0, {&w.image_modulation, &w.text_modulation})[0];
  const int64_t d = config_.hidden();
  return TokenNorm()(hidden.tokens.body, part(m, 0, d), part(m, 1, d), dit(placement).sequences);
}

Tensor Flux::head(const nn::StepContext& step, const nn::Placement& placement,
                  const nn::Hidden& hidden) const {
  const Tensor out = head_(head_norm(step, placement, hidden.tokens.body, 1, 0));
  clear_references(out, dynamic_cast<const FluxPlacement&>(placement).references);
  return out;
}

}  // namespace tessera::models
