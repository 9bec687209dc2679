#include "models/flux.h"

#include "base/fail.h"
#include "nn/positions.h"
#include "ops/elementwise.h"

namespace tessera::models {
namespace {

constexpr int64_t kWaves = 256;  // channels of a sinusoidal embedding

struct FluxContext : nn::Context {
  Tensor text;              // [rows * length, hidden]
  Tensor fixed;             // f32 [rows, hidden]: pooled text and guidance
  ops::RotaryTable angles;  // of the picture's tokens; text stands at 0, where nothing turns
  int64_t length = 0;
};

struct FluxStep : nn::StepContext {
  const FluxContext* context = nullptr;
  std::vector<Tensor> picture, text;  // per block of the portion, f32 [rows, n * hidden]
  Tensor final_modulation;            // f32 [rows, 2 * hidden]: scale, shift
};

nn::Geometry geometry_of(const FluxConfig& c) {
  nn::Geometry g;
  g.blocks = static_cast<int>(c.blocks());
  g.hidden = c.hidden();
  g.channels_in = c.in_channels / 4;
  g.channels_out = c.out_channels / 4;
  g.patch_size = {1, 2, 2};
  const int heads = static_cast<int>(c.num_attention_heads);
  for (int b = 0; b < g.blocks; ++b) {
    g.attention.push_back({.block = b,
                           .heads = heads,
                           .kv_heads = heads,
                           .head_dim = static_cast<int>(c.attention_head_dim),
                           .joint = true,
                           .prefix_queries = true});
    g.skip_from.push_back(-1);
  }
  return g;
}

}  // namespace

Flux::Flux(const FluxConfig& config, const nn::Weights& weights, const nn::Portion& portion,
           DType dtype)
    : config_(config), dtype_(dtype), geometry_(geometry_of(config)), blocks_(portion.blocks) {
  const int64_t d = config.hidden();
  const std::string emb = "time_text_embed.";
  time_ = TwoLinears(weights, emb + "timestep_embedder", kWaves, d, d, ops::Activation::silu,
                     DType::f32);
  if (config.guidance_embeds)
    guidance_ = TwoLinears(weights, emb + "guidance_embedder", kWaves, d, d, ops::Activation::silu,
                           DType::f32);
  pooled_ = TwoLinears(weights, emb + "text_embedder", config.pooled_projection_dim, d, d,
                       ops::Activation::silu, DType::f32);
  if (portion.embed) {
    picture_in_ = nn::Linear(weights, "x_embedder", d, config.in_channels, dtype);
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
    return nn::Linear(weights, name + part, d, d, dtype_);
  };
  return {linear("q"), linear("k"), linear("v"),
          HeadNorm::rms(weights, name + (text ? "norm_added_q" : "norm_q"), dim),
          HeadNorm::rms(weights, name + (text ? "norm_added_k" : "norm_k"), dim)};
}

Flux::Block Flux::load_double(const nn::Weights& weights, int64_t index) const {
  const int64_t d = config_.hidden();
  const std::string name = fmt::format("transformer_blocks.{}.", index);
  auto stream = [&](bool text) -> Stream {
    return {
        load_heads(weights, name + "attn.", text),
        nn::Linear(weights, name + (text ? "attn.to_add_out" : "attn.to_out.0"), d, d, dtype_),
        nn::Linear(weights, name + (text ? "norm1_context.linear" : "norm1.linear"), 6 * d, d,
                   dtype_),
        TwoLinears::feed_forward(weights, name + (text ? "ff_context" : "ff"), d, 4 * d, dtype_)};
  };
  Block block;
  block.picture = stream(false);
  block.text = stream(true);
  return block;
}

Flux::Block Flux::load_single(const nn::Weights& weights, int64_t index) const {
  const int64_t d = config_.hidden();
  const std::string name = fmt::format("single_transformer_blocks.{}.", index);
  Block block;
  block.heads = load_heads(weights, name + "attn.", false);
  block.modulation = nn::Linear(weights, name + "norm.linear", 3 * d, d, dtype_);
  block.widen = nn::Linear(weights, name + "proj_mlp", 4 * d, d, dtype_);
  block.out = nn::Linear(weights, name + "proj_out", d, 5 * d, dtype_);
  return block;
}

nn::ContextPtr Flux::prepare(const nn::Conditioning& conditioning,
                             const nn::TokenShape& shape) const {
  auto context = std::make_shared<FluxContext>();
  const Tensor text = text_input(conditioning, "encoder_hidden_states", shape.rows,
                                 config_.joint_attention_dim, &context->length);
  require(context->length == shape.prefix, ErrorCode::usage,
          "'encoder_hidden_states' has {} tokens, the request {}", context->length, shape.prefix);
  context->fixed = pooled_(
      row_input(conditioning, "pooled_projections", shape.rows, config_.pooled_projection_dim));
  if (config_.guidance_embeds) {
    const Tensor scale = row_input(conditioning, "guidance", shape.rows, 1).reshape({shape.rows});
    context->fixed = guidance_(ops::timestep_embedding(ops::scale(scale, 1000), kWaves),
                               {.residual = context->fixed});
  }
  if (text_in_.weight()) context->text = text_in_(ops::cast(text, dtype_));
  const int64_t pairs = config_.attention_head_dim / 2;
  if (text.is_meta()) {
    const Tensor table = Tensor::empty({shape.tokens(), pairs}, DType::f32, text.device());
    context->angles = {table, table};
    return context;
  }
  std::vector<nn::RotaryAxis> axes(3);
  for (size_t i = 0; i < 3; ++i) axes[i].pairs = config_.axes_dims_rope[i] / 2;
  for (int64_t y = 0; y < shape.grid[1]; ++y)
    for (int64_t x = 0; x < shape.grid[2]; ++x) {
      axes[0].places.push_back(0);
      axes[1].places.push_back(double(y));
      axes[2].places.push_back(double(x));
    }
  context->angles = nn::rotary_axes(axes, text.device());
  return context;
}

nn::StepContextPtr Flux::at(const nn::Context& context, const Tensor& timestep) const {
  auto step = std::make_shared<FluxStep>();
  step->context = &dynamic_cast<const FluxContext&>(context);
  // The pipeline divides by 1000 and the model multiplies again, in floats.
  const Tensor condition =
      ops::silu(time_(ops::timestep_embedding(ops::scale(timestep, 1000, 1000), kWaves),
                      {.residual = step->context->fixed}));
  for (const Block& block : layers_) {
    const bool single = block.modulation.weight() != nullptr;
    step->picture.push_back(single ? block.modulation(condition)
                                   : block.picture.modulation(condition));
    step->text.push_back(single ? step->picture.back() : block.text.modulation(condition));
  }
  if (final_modulation_.weight()) step->final_modulation = final_modulation_(condition);
  return step;
}

nn::Hidden Flux::embed(const nn::StepContext& step, const Tensor& latent,
                       const nn::TokenView& view) const {
  const FluxContext& context = *dynamic_cast<const FluxStep&>(step).context;
  return {.tokens = {.prefix = nn::take_tokens(context.text, context.length, view.prefix),
                     .body = ops::cast(picture_in_(latent), dtype_)},
          .skips = {}};
}

nn::Heads Flux::turned(const nn::Heads& heads, const ops::RotaryTable& angles) const {
  const int64_t dim = config_.attention_head_dim;
  return {ops::rope(heads.q, angles, dim, ops::RotaryPairs::neighbours),
          ops::rope(heads.k, angles, dim, ops::RotaryPairs::neighbours), heads.v};
}

void Flux::block(int index, const nn::StepContext& step, const nn::TokenView& view,
                 nn::Hidden& hidden, const nn::Seams& seams) const {
  const Block& w = layers_.at(static_cast<size_t>(index - blocks_.begin));
  if (index < config_.num_layers)
    double_block(w, index, step, view, hidden, seams);
  else
    single_block(w, index, step, view, hidden, seams);
}

void Flux::double_block(const Block& w, int site, const nn::StepContext& step,
                        const nn::TokenView& view, nn::Hidden& hidden,
                        const nn::Seams& seams) const {
  const FluxStep& at = dynamic_cast<const FluxStep&>(step);
  const size_t local = static_cast<size_t>(site - blocks_.begin);
  const Tensor &m = at.picture.at(local), &n = at.text.at(local);
  const std::vector<int32_t> rows = nn::rows_of(view.body), text_rows = nn::rows_of(view.prefix);
  const ops::RotaryTable angles = nn::take_angles(at.context->angles, view.body);
  const int64_t d = config_.hidden();
  const TokenNorm norm;
  Tensor &x = hidden.tokens.body, &c = hidden.tokens.prefix;

  const nn::Heads heads = w.picture.heads(norm(x, part(m, 0, d), part(m, 1, d), rows));
  const nn::Heads text = w.text.heads(norm(c, part(n, 0, d), part(n, 1, d), text_rows));
  const nn::Joint seen = seams.attention.attend(site, view, text, turned(heads, angles));
  x = w.picture.out(seen.body, {.gate = part(m, 2, d), .row_of = rows, .residual = x});
  c = w.text.out(seen.prefix, {.gate = part(n, 2, d), .row_of = text_rows, .residual = c});
  const Tensor fed = norm(x, part(m, 3, d), part(m, 4, d), rows);
  x = w.picture.feed_forward(fed, {.gate = part(m, 5, d), .row_of = rows, .residual = x});
  const Tensor fed_text = norm(c, part(n, 3, d), part(n, 4, d), text_rows);
  c = w.text.feed_forward(fed_text, {.gate = part(n, 5, d), .row_of = text_rows, .residual = c});
}

void Flux::single_block(const Block& w, int site, const nn::StepContext& step,
                        const nn::TokenView& view, nn::Hidden& hidden,
                        const nn::Seams& seams) const {
  const FluxStep& at = dynamic_cast<const FluxStep&>(step);
  const Tensor& m = at.picture.at(static_cast<size_t>(site - blocks_.begin));
  const std::vector<int32_t> rows = nn::rows_of(view.body), text_rows = nn::rows_of(view.prefix);
  const ops::RotaryTable angles = nn::take_angles(at.context->angles, view.body);
  const int64_t d = config_.hidden();
  const TokenNorm norm;
  Tensor &x = hidden.tokens.body, &c = hidden.tokens.prefix;

  const Tensor before = norm(x, part(m, 0, d), part(m, 1, d), rows);
  const Tensor told = norm(c, part(m, 0, d), part(m, 1, d), text_rows);
  const nn::Joint seen =
      seams.attention.attend(site, view, w.heads(told), turned(w.heads(before), angles));
  auto close = [&](const Tensor& normed, const Tensor& attended, const Tensor& residual,
                   std::span<const int32_t> row_of) {
    const Tensor wide = w.widen(normed, {.activation = ops::Activation::gelu_tanh});
    return w.out(ops::concat_columns({attended, wide}),
                 {.gate = part(m, 2, d), .row_of = row_of, .residual = residual});
  };
  x = close(before, seen.body, x, rows);
  c = close(told, seen.prefix, c, text_rows);
}

Tensor Flux::head(const nn::StepContext& step, const nn::TokenView& view,
                  const nn::Hidden& hidden) const {
  const Tensor& m = dynamic_cast<const FluxStep&>(step).final_modulation;
  const std::vector<int32_t> rows = nn::rows_of(view.body);
  const int64_t d = config_.hidden();
  return head_(TokenNorm()(hidden.tokens.body, part(m, 1, d), part(m, 0, d), rows));
}

}  // namespace tessera::models
