#include "models/sd3.h"

#include <utility>

#include "base/fail.h"
#include "nn/positions.h"

namespace tessera::models {
namespace {

constexpr int64_t kWaves = 256;  // channels of a sinusoidal embedding

struct Sd3Context : nn::Context {
  Tensor text;       // [batch * length, hidden]
  Tensor pooled;     // f32 [batch, hidden]
  Tensor positions;  // f32 [tokens of a sequence, hidden]
  int64_t length = 0;
};

nn::Geometry geometry_of(const Sd3Config& c) {
  nn::Geometry g = dit_geometry(c.num_layers, c.num_attention_heads, c.attention_head_dim, true);
  g.channels_in = c.in_channels;
  g.channels_out = c.out_channels;
  g.patch_size = {1, c.patch_size, c.patch_size};
  for (nn::AttentionSite site : std::exchange(g.attention, {})) {
    site.prefix_queries = site.block + 1 < g.blocks;
    g.attention.push_back(site);
    site.joint = site.prefix_queries = false;
    if (c.dual_attention_layers.contains(site.block)) g.attention.push_back(site);
  }
  return g;
}

}  // namespace

Sd3::Sd3(const Sd3Config& config, const nn::Weights& weights, const nn::Portion& portion,
         DType dtype)
    : config_(config),
      dtype_(dtype),
      geometry_(geometry_of(config).of(weights.shard())),
      blocks_(portion.blocks) {
  const int64_t d = config.hidden(), most = config.pos_embed_max_size;
  if (portion.conditioning) {
    const std::string emb = "time_text_embed.";
    time_ =
        Mlp(weights, emb + "timestep_embedder", kWaves, d, d, ops::Activation::silu, DType::f32);
    pooled_ = Mlp(weights, emb + "text_embedder", config.pooled_projection_dim, d, d,
                  ops::Activation::silu, DType::f32);
  }
  if (portion.embed) {
    patch_ = PatchEmbed(weights, "pos_embed.proj", d, config.in_channels, config.patch_size, true,
                        dtype);
    positions_ = RowTable(weights, "pos_embed.pos_embed", {1, most * most, d}, most * most, d);
    text_ = nn::Linear(weights, "context_embedder", d, config.joint_attention_dim, dtype);
  }
  if (portion.head) {
    final_modulation_ = nn::Linear(weights, "norm_out.linear", 2 * d, d, dtype);
    head_ = PatchHead(weights, config.patch_size * config.patch_size, config.out_channels, d, true,
                      dtype);
  }
  for (int64_t b = blocks_.begin; b < blocks_.end; ++b) layers_.push_back(load_block(weights, b));
}

Projections Sd3::load_heads(const nn::Weights& weights, const std::string& name, bool text,
                            bool queries) const {
  const int64_t d = config_.hidden(), dim = config_.attention_head_dim;
  auto linear = [&](const char* which) {
    const std::string part = text ? fmt::format("add_{}_proj", which) : fmt::format("to_{}", which);
    return nn::Linear(weights, name + part, d, d, dtype_, {.split = split_heads(d, dim)});
  };
  auto norm = [&](const std::string& which) {
    if (!config_.qk_norm) return HeadNorm();
    return HeadNorm::rms(weights, name + (text ? "norm_added_" : "norm_") + which, dim);
  };
  Projections heads{{}, {linear("k"), norm("k")}, linear("v")};
  if (queries) {
    heads.q = {linear("q"), norm("q")};
    return heads;
  }
  // Text of the last block has no queries, but published files hold their weights.
  weights.get(name + "add_q_proj.weight", {d, d});
  weights.get(name + "add_q_proj.bias", {d});
  if (config_.qk_norm) weights.get(name + "norm_added_q.weight", {dim});
  return heads;
}

Sd3::Block Sd3::load_block(const nn::Weights& weights, int64_t index) const {
  const int64_t d = config_.hidden();
  const std::string name = fmt::format("transformer_blocks.{}.", index), attention = name + "attn.";
  auto out = [&](const std::string& part) {
    return nn::Linear(weights, part, d, d, dtype_,
                      {.split = nn::Split::inputs({{d, config_.attention_head_dim}})});
  };
  Block block;
  for (size_t i = 0; i < geometry_.attention.size(); ++i)
    if (geometry_.attention[i].block == index && geometry_.attention[i].joint)
      block.site = static_cast<int>(i);
  block.dual = config_.dual_attention_layers.contains(index);
  block.last = index + 1 == config_.num_layers;
  block.image.heads = load_heads(weights, attention, false, true);
  block.text.heads = load_heads(weights, attention, true, !block.last);
  block.image.out = out(attention + "to_out.0");
  block.image.modulation =
      nn::Linear(weights, name + "norm1.linear", (block.dual ? 9 : 6) * d, d, dtype_);
  block.image.mlp = Mlp::of_block(weights, name + "ff", d, 4 * d, dtype_);
  block.text.modulation =
      nn::Linear(weights, name + "norm1_context.linear", (block.last ? 2 : 6) * d, d, dtype_);
  if (!block.last) {
    block.text.out = out(attention + "to_add_out");
    block.text.mlp = Mlp::of_block(weights, name + "ff_context", d, 4 * d, dtype_);
  }
  if (block.dual) {
    block.second = load_heads(weights, name + "attn2.", false, true);
    block.second_out = out(name + "attn2.to_out.0");
  }
  return block;
}

nn::ContextPtr Sd3::prepare(const nn::Conditioning& conditioning,
                            const nn::TokenShape& shape) const {
  const int64_t most = config_.pos_embed_max_size, height = shape.grid[1], width = shape.grid[2];
  require(
      height <= most && width <= most, ErrorCode::usage,
      "an image of {} x {} tokens (width x height) is larger than the {} x {} that this model has "
      "positions for",
      width, height, most, most);
  auto context = std::make_shared<Sd3Context>();
  const Tensor text = text_input(conditioning, "encoder_hidden_states", shape.batch,
                                 config_.joint_attention_dim, &context->length);
  require(context->length == shape.prefix, ErrorCode::usage,
          "'encoder_hidden_states' has {} tokens, the request {}", context->length, shape.prefix);
  context->pooled = pooled_(
      batch_input(conditioning, "pooled_projections", shape.batch, config_.pooled_projection_dim));
  if (!positions_.defined()) return context;
  context->text = text_(ops::cast(text, dtype_));
  std::vector<int32_t> middle;  // centre of the square of positions
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      middle.push_back(
          static_cast<int32_t>(((most - height) / 2 + y) * most + (most - width) / 2 + x));
  context->positions = positions_(middle);
  return context;
}

nn::PlacementPtr Sd3::place(const nn::Context& context, const nn::TokenView& view) const {
  const auto& of = dynamic_cast<const Sd3Context&>(context);
  return std::make_shared<DitPlacement>(of, view, of.pooled.device());
}

nn::StepContextPtr Sd3::at(const nn::Context& context, const Tensor& timestep) const {
  auto step = std::make_shared<DitStep>();
  step->condition = ops::silu(time_(ops::timestep_embedding(timestep, kWaves),
                                    {.residual = dynamic_cast<const Sd3Context&>(context).pooled}));
  if (final_modulation_.weight()) step->final_modulation = final_modulation_(step->condition);
  return step;
}

nn::Hidden Sd3::embed(const nn::Placement& placement, const Tensor& latent) const {
  const Sd3Context& context = dit(placement).in<Sd3Context>();
  const Tensor places = nn::take_tokens(context.positions, 0, placement.view.body);
  return {.tokens = {.prefix = nn::take_tokens(context.text, context.length, placement.view.prefix),
                     .body = patch_(latent, places, dtype_)},
          .skips = {}};
}

void Sd3::block(int index, const nn::StepContext& step, const nn::Placement& placement,
                nn::Hidden& hidden, const nn::Seams& seams) const {
  const Block& w = layers_.at(static_cast<size_t>(index - blocks_.begin));
  const auto& p = dit(placement);
  const auto& modulations = dit(step).of(index, {&w.image.modulation, &w.text.modulation});
  const Tensor &m = modulations[0], &n = modulations[1];
  const int64_t d = config_.hidden();
  const TokenNorm norm;
  Tensor &x = hidden.tokens.body, &c = hidden.tokens.prefix;

  const int64_t text = c.size(0), all = text + x.size(0);
  nn::Qkv heads;
  if (seams.attention.needs_heads(w.site)) {
    heads = w.image.heads.room(x, all, w.last ? text : 0);
    // Text of the last block has a continuous norm, with scale before shift.
    const Tensor normed_text =
        norm(c, part(n, w.last ? 1 : 0, d), part(n, w.last ? 0 : 1, d), p.text_sequences);
    Projections::both(w.text.heads, w.image.heads,
                      {normed_text, norm(x, part(m, 0, d), part(m, 1, d), p.sequences)}, {}, heads);
  }
  const nn::Joint attention =
      apart(seams.attention.attend(w.site, p.view, heads), w.last ? 0 : text);
  Tensor second;
  if (w.dual) {
    nn::Qkv alone;
    if (seams.attention.needs_heads(w.site + 1))
      alone = w.second(norm(x, part(m, 6, d), part(m, 7, d), p.sequences));
    second = seams.attention.attend(w.site + 1, p.view, alone);
  }
  ops::MatmulGroup group;
  x = w.image.out(attention.body, gated(m, 2, p.sequences, x, &group), seams.reduce);
  if (!w.last)
    c = w.text.out(attention.prefix, gated(n, 2, p.text_sequences, c, &group), seams.reduce);
  group.run();
  if (w.dual) x = w.second_out(second, gated(m, 8, p.sequences, x), seams.reduce);
  const Tensor mlp_input = norm(x, part(m, 3, d), part(m, 4, d), p.sequences);
  if (w.last) {
    x = w.image.mlp(mlp_input, gated(m, 5, p.sequences, x), seams.reduce);
    c = Tensor();
    return;
  }
  const Tensor text_mlp_input = norm(c, part(n, 3, d), part(n, 4, d), p.text_sequences);
  hidden.tokens =
      Mlp::both(w.text.mlp, w.image.mlp, {text_mlp_input, mlp_input, {}},
                gated(n, 5, p.text_sequences, c), gated(m, 5, p.sequences, x), seams.reduce);
}

Tensor Sd3::first_input(const nn::StepContext& step, const nn::Placement& placement,
                        const nn::Hidden& hidden, const nn::Seams&) const {
  const Block& w = layers_.at(static_cast<size_t>(-blocks_.begin));
  const Tensor& m = dit(step).of(0, {&w.image.modulation, &w.text.modulation})[0];
  const int64_t d = config_.hidden();
  return TokenNorm()(hidden.tokens.body, part(m, 0, d), part(m, 1, d), dit(placement).sequences);
}

Tensor Sd3::head(const nn::StepContext& step, const nn::Placement& placement,
                 const nn::Hidden& hidden) const {
  return head_(head_norm(step, placement, hidden.tokens.body, 1, 0));
}

}  // namespace tessera::models
