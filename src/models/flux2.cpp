#include "models/flux2.h"

#include "base/fail.h"
#include "models/reference_tokens.h"
#include "nn/positions.h"
#include "ops/elementwise.h"

namespace tessera::models {
namespace {

struct Flux2Context : nn::Context {
  Tensor text;              // [batch * length, hidden]
  Tensor references;        // f32 [batch * reference tokens, in_channels]
  ops::RotaryTable angles;  // angles of text, noise and references, for each sequence
  nn::TokenShape shape;
  tensor::Device device = tensor::Device::cpu;
};

struct Flux2Placement : DitPlacement {
  using DitPlacement::DitPlacement;
  ops::RowMap both_rows;  // text tokens, then image tokens
  ops::RotaryTable both_angles;
  ReferenceRows references;  // positions of references in the body, and their rows
};

// Modulation that all blocks share: f32 [batch, n * hidden] each.
struct Flux2Step : DitStep {
  Tensor image, text, single;
};

nn::Geometry geometry_of(const Flux2Config& c) {
  nn::Geometry g = dit_geometry(c.blocks(), c.num_attention_heads, c.attention_head_dim, true);
  g.channels_in = g.channels_out = c.in_channels / 4;
  g.patch_size = {1, 2, 2};
  return g;
}

ops::RotaryTable angles_of(const Flux2Config& config, const nn::TokenShape& shape,
                           const std::vector<std::array<int64_t, 2>>& references,
                           tensor::Device device) {
  std::vector<nn::RotaryAxis> axes(4);
  for (size_t i = 0; i < 4; ++i) axes[i].pairs = config.axes_dims_rope[i] / 2;
  const auto add = [&](int64_t time, int64_t line, int64_t column, int64_t place) {
    const int64_t at[] = {time, line, column, place};
    for (size_t i = 0; i < 4; ++i) axes[i].places.push_back(double(at[i]));
  };
  const auto add_grid = [&](int64_t time, int64_t lines, int64_t columns) {
    for (int64_t y = 0; y < lines; ++y)
      for (int64_t x = 0; x < columns; ++x) add(time, y, x, 0);
  };
  for (int64_t j = 0; j < shape.prefix; ++j) add(0, 0, 0, j);
  add_grid(0, shape.grid[1], shape.grid[2]);
  for (size_t i = 0; i < references.size(); ++i)
    add_grid(10 + 10 * static_cast<int64_t>(i), references[i][0], references[i][1]);
  return nn::rotary_axes(axes, device, config.rope_theta);
}

}  // namespace

Flux2::Flux2(const Flux2Config& config, const nn::Weights& weights, const nn::Portion& portion,
             DType dtype)
    : config_(config),
      dtype_(dtype),
      geometry_(geometry_of(config).of(weights.shard())),
      blocks_(portion.blocks) {
  const int64_t d = config.hidden(), waves = config.timestep_guidance_channels;
  const auto linear = [&](const std::string& name, int64_t n, int64_t k, DType type) {
    return nn::Linear(weights, name, n, k, type, {.bias = false});
  };
  if (portion.conditioning) {
    const std::string time = "time_guidance_embed.timestep_embedder.";
    time_in_ = linear(time + "linear_1", d, waves, DType::f32);
    time_out_ = linear(time + "linear_2", d, d, DType::f32);
    image_modulation_ = linear("double_stream_modulation_img.linear", 6 * d, d, dtype);
    text_modulation_ = linear("double_stream_modulation_txt.linear", 6 * d, d, dtype);
    single_modulation_ = linear("single_stream_modulation.linear", 3 * d, d, dtype);
  }
  if (portion.embed) {
    image_in_ = linear("x_embedder", d, config.in_channels, dtype);
    text_in_ = linear("context_embedder", d, config.joint_attention_dim, dtype);
  }
  if (portion.head) {
    final_modulation_ = linear("norm_out.linear", 2 * d, d, dtype);
    head_ = linear("proj_out", config.in_channels, d, dtype);
  }
  for (int64_t b = blocks_.begin; b < blocks_.end; ++b)
    layers_.push_back(b < config.num_layers ? load_double(weights, b)
                                            : load_single(weights, b - config.num_layers));
}

std::string Flux2::block_name(int index) const {
  return index < config_.num_layers ? fmt::format("block.{}", index)
                                    : fmt::format("single_block.{}", index - config_.num_layers);
}

HeadNorm Flux2::head_norm_of(const nn::Weights& weights, const std::string& name) const {
  return {weights.vector(name + ".weight", config_.attention_head_dim),
          {},
          static_cast<float>(config_.eps)};
}

Flux2::Block Flux2::load_double(const nn::Weights& weights, int64_t index) const {
  const int64_t d = config_.hidden(), dim = config_.attention_head_dim, inner = config_.inner();
  const std::string name = fmt::format("transformer_blocks.{}.", index);
  const auto linear = [&](const std::string& part, int64_t n, int64_t k, nn::Split split) {
    return nn::Linear(weights, name + part, n, k, dtype_,
                      {.bias = false, .split = std::move(split)});
  };
  const auto stream = [&](bool text) -> DoubleBlock::Stream {
    const auto heads = [&](const char* which) {
      return linear(
          text ? fmt::format("attn.add_{}_proj", which) : fmt::format("attn.to_{}", which), d, d,
          split_heads(d, dim));
    };
    const auto norm = [&](const char* which) {
      return head_norm_of(weights, name + "attn.norm_" + (text ? "added_" : "") + which);
    };
    return {{{heads("q"), norm("q")}, {heads("k"), norm("k")}, heads("v")},
            linear(text ? "attn.to_add_out" : "attn.to_out.0", d, d, nn::Split::inputs({{d, dim}})),
            Mlp::gated_block(weights, name + (text ? "ff_context" : "ff"), d, inner, dtype_)};
  };
  Block block;
  block.both = {stream(false), stream(true), {{}, {}, static_cast<float>(config_.eps)}};
  return block;
}

Flux2::Block Flux2::load_single(const nn::Weights& weights, int64_t index) const {
  const int64_t d = config_.hidden(), dim = config_.attention_head_dim, inner = config_.inner();
  const std::string name = fmt::format("single_transformer_blocks.{}.attn.", index);
  const nn::Split::Piece heads{d, dim}, wide{inner};
  Block block;
  block.widen =
      nn::Linear(weights, name + "to_qkv_mlp_proj", 3 * d + 2 * inner, d, dtype_,
                 {.bias = false, .split = nn::Split::outputs({heads, heads, heads, wide, wide})});
  block.out = nn::Linear(weights, name + "to_out", d, d + inner, dtype_,
                         {.bias = false, .split = nn::Split::inputs({heads, wide})});
  block.q_norm = head_norm_of(weights, name + "norm_q");
  block.k_norm = head_norm_of(weights, name + "norm_k");
  return block;
}

nn::ContextPtr Flux2::prepare(const nn::Conditioning& conditioning,
                              const nn::TokenShape& shape) const {
  auto context = std::make_shared<Flux2Context>();
  int64_t length = 0;
  const Tensor text = text_input(conditioning, "encoder_hidden_states", shape.batch,
                                 config_.joint_attention_dim, &length);
  require(length == shape.prefix, ErrorCode::usage,
          "'encoder_hidden_states' has {} tokens, the request {}", length, shape.prefix);
  if (text_in_.weight()) context->text = text_in_(ops::cast(text, dtype_));
  const References references = references_of(conditioning, shape, config_.in_channels);
  context->references = references.tokens;
  context->shape = shape;
  context->device = text.device();
  if (text.is_meta()) {
    const auto table = [&] {
      return Tensor::empty({shape.prefix + shape.tokens(), config_.attention_head_dim / 2},
                           DType::f32, text.device());
    };
    context->angles = {table(), table()};
    return context;
  }
  context->angles = angles_of(config_, shape, references.sizes, text.device());
  return context;
}

nn::PlacementPtr Flux2::place(const nn::Context& context, const nn::TokenView& view) const {
  const auto& of = dynamic_cast<const Flux2Context&>(context);
  auto placement = std::make_shared<Flux2Placement>(of, view, of.device);
  nn::Segments joined;  // indices into a sequence's table
  const int64_t length = of.shape.prefix;
  for (const auto* segments : {&view.prefix, &view.body})
    for (const nn::Segment& s : *segments)
      joined.push_back({s.sequence, {length + s.ids.begin, length + s.ids.end}});
  placement->both_rows = ops::RowMap(nn::sequences_of(joined), of.device);
  placement->both_angles = nn::take_angles(of.angles, joined);
  const auto& [cos, sin] = placement->both_angles;
  const int64_t text = nn::token_count(view.prefix);
  const nn::Joint cosines = apart(cos, text), sines = apart(sin, text);
  placement->angles = {cosines.body, sines.body};
  placement->text_angles = {cosines.prefix, sines.prefix};
  placement->references = reference_rows(of.shape, view.body);
  return placement;
}

nn::StepContextPtr Flux2::at(const nn::Context&, const Tensor& timestep) const {
  auto step = std::make_shared<Flux2Step>();
  // The pipeline divides by 1000 and the model multiplies again, both in f32.
  const Tensor waves =
      ops::timestep_embedding(ops::scale(timestep, 1000, 1000), config_.timestep_guidance_channels);
  step->condition = ops::silu(time_out_(time_in_(waves, {.activation = ops::Activation::silu})));
  step->image = image_modulation_(step->condition);
  step->text = text_modulation_(step->condition);
  step->single = single_modulation_(step->condition);
  if (final_modulation_.weight()) step->final_modulation = final_modulation_(step->condition);
  return step;
}

nn::Hidden Flux2::embed(const nn::Placement& placement, const Tensor& latent) const {
  const auto& p = dynamic_cast<const Flux2Placement&>(placement);
  const auto& context = p.in<Flux2Context>();
  const Tensor tokens = with_references(latent, context.references, p.references);
  return {.tokens = {.prefix = nn::take_tokens(context.text, context.shape.prefix, p.view.prefix),
                     .body = image_in_(tokens, {.out = dtype_, .out_as_input = false})},
          .skips = {}};
}

void Flux2::block(int index, const nn::StepContext& step, const nn::Placement& placement,
                  nn::Hidden& hidden, const nn::Seams& seams) const {
  hidden.tokens = index < config_.num_layers
                      ? double_block(index, step, placement, hidden.tokens, seams)
                      : single_block(index, step, placement, hidden.tokens, seams);
}

nn::Joint Flux2::double_block(int site, const nn::StepContext& step, const nn::Placement& placement,
                              const nn::Joint& streams, const nn::Seams& seams) const {
  const auto& at = dynamic_cast<const Flux2Step&>(step);
  return layers_.at(static_cast<size_t>(site - blocks_.begin))
      .both(site, {.prefix = at.text, .body = at.image, .both = {}}, dit(placement), streams,
            seams);
}

// Text and image share weights in these blocks, so both stay joined in a tensor from the first of
// these blocks to the last.
nn::Joint Flux2::single_block(int site, const nn::StepContext& step, const nn::Placement& placement,
                              const nn::Joint& streams, const nn::Seams& seams) const {
  const Block& w = layers_.at(static_cast<size_t>(site - blocks_.begin));
  const auto& p = dynamic_cast<const Flux2Placement&>(placement);
  const Tensor& m = dynamic_cast<const Flux2Step&>(step).single;
  const int64_t d = config_.hidden();
  const TokenNorm norm{{}, {}, static_cast<float>(config_.eps)};
  const Tensor x = together(streams);

  const Tensor qkv_mlp = w.widen(norm(x, part(m, 0, d), part(m, 1, d), p.both_rows));
  const int64_t heads = int64_t{geometry_.attention.front().heads} * config_.attention_head_dim;
  const int64_t inner = (qkv_mlp.size(1) - 3 * heads) / 2, all = heads + inner;
  const Tensor q = w.q_norm(part(qkv_mlp, 0, heads), {}, p.both_angles),
               k = w.k_norm(part(qkv_mlp, 1, heads), {}, p.both_angles);
  const Tensor attention = seams.attention.attend(site, p.view, {q, k, part(qkv_mlp, 2, heads)});
  const Tensor wide = Tensor::empty({x.size(0), all}, x.dtype(), x.device());
  tensor::copy_into(wide.slice(1, 0, heads), attention);
  tensor::copy_into(wide.slice(1, heads, all),
                    ops::swiglu(qkv_mlp.slice(1, 3 * heads, 3 * heads + inner),
                                qkv_mlp.slice(1, 3 * heads + inner, qkv_mlp.size(1))));
  return apart(w.out(wide, gated(m, 2, p.both_rows, x), seams.reduce), streams.prefix.size(0));
}

Tensor Flux2::first_input(const nn::StepContext& step, const nn::Placement& placement,
                          const nn::Hidden& hidden, const nn::Seams&) const {
  require(config_.num_layers > 0, ErrorCode::usage,
          "`cache` teacache: this model has no double blocks");
  const Tensor& m = dynamic_cast<const Flux2Step&>(step).image;
  const int64_t d = config_.hidden();
  const TokenNorm norm{{}, {}, static_cast<float>(config_.eps)};
  return norm(hidden.tokens.body, part(m, 0, d), part(m, 1, d),
              dynamic_cast<const Flux2Placement&>(placement).sequences);
}

Tensor Flux2::head(const nn::StepContext& step, const nn::Placement& placement,
                   const nn::Hidden& hidden) const {
  const auto& p = dynamic_cast<const Flux2Placement&>(placement);
  const Tensor& m = dit(step).final_modulation;
  const int64_t d = config_.hidden();
  const TokenNorm norm{{}, {}, static_cast<float>(config_.eps)};
  const Tensor out = head_(norm(hidden.tokens.body, part(m, 1, d), part(m, 0, d), p.sequences),
                           {.out = DType::f32, .out_as_input = false});
  clear_references(out, p.references);
  return out;
}

}  // namespace tessera::models
