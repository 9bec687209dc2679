#include "models/llada.h"

#include "base/fail.h"
#include "nn/positions.h"
#include "ops/elementwise.h"
#include "ops/norm.h"

namespace tessera::models {
namespace {

struct LladaPlacement : nn::Placement {
  using Placement::Placement;
  ops::RotaryTable rotary;
};

nn::Geometry geometry_of(const LladaConfig& c) {
  nn::Geometry g;
  g.blocks = static_cast<int>(c.layers());
  g.hidden = c.hidden;
  g.channels_in = g.channels_out = c.vocabulary;
  for (int b = 0; b < g.blocks; ++b) {
    g.attention.push_back({.block = b,
                           .heads = static_cast<int>(c.heads),
                           .kv_heads = static_cast<int>(c.kv_heads),
                           .head_dim = static_cast<int>(c.head_dim),
                           .causal_block = c.causal_block});
    if (c.sparse[static_cast<size_t>(b)])
      g.experts.push_back(
          {b, static_cast<int>(c.experts), static_cast<int>(c.top_k), c.expert_width});
    g.skip_from.push_back(-1);
  }
  return g;
}

}  // namespace

ops::Expert load_routed_expert(const LladaConfig& config, const nn::Weights& weights, int64_t block,
                               int64_t expert, DType dtype) {
  return nn::load_expert(weights, fmt::format("model.layers.{}.mlp.experts.{}.", block, expert),
                         config.expert_width, config.hidden, dtype);
}

Llada::Llada(const LladaConfig& config, const nn::Weights& weights, const nn::Portion& portion,
             DType dtype)
    : config_(config),
      dtype_(dtype),
      geometry_(geometry_of(config).of(weights.shard())),
      blocks_(portion.blocks) {
  const std::string table =
      config.ling_names ? "model.word_embeddings.weight" : "model.embed_tokens.weight";
  if (portion.embed) embedding_ = weights.get(table, {config.vocabulary, config.hidden});
  for (int64_t b = blocks_.begin; b < blocks_.end; ++b)
    layers_.push_back(load_block(weights, b, portion));
  if (!portion.head) return;
  final_norm_ = weights.vector("model.norm.weight", config.hidden);
  head_ = weights.matrix(config.tied ? table : "lm_head.weight", config.vocabulary, config.hidden,
                         dtype);
}

Llada::Block Llada::load_block(const nn::Weights& weights, int64_t index,
                               const nn::Portion& portion) const {
  const std::string name = fmt::format("model.layers.{}.", index);
  Block block;
  block.attention_norm = weights.vector(name + "input_layernorm.weight", config_.hidden);
  block.feed_norm = weights.vector(name + "post_attention_layernorm.weight", config_.hidden);
  load_attention(weights, name, block);
  if (config_.sparse[static_cast<size_t>(index)]) {
    block.expert_site = 0;
    for (int64_t b = 0; b < index; ++b) block.expert_site += config_.sparse[static_cast<size_t>(b)];
    load_experts(weights, index, portion, block);
  } else {
    block.dense =
        nn::load_expert(weights, name + "mlp.", config_.dense_width, config_.hidden, dtype_);
  }
  return block;
}

void Llada::load_attention(const nn::Weights& weights, const std::string& name,
                           Block& block) const {
  const LladaConfig& c = config_;
  const nn::Split::Piece q{c.heads * c.head_dim, c.head_dim},
      kv{c.kv_heads * c.head_dim, c.head_dim};
  const std::string at = name + (c.ling_names ? "attention." : "self_attn.");
  auto heads = [&](const char* tail, std::vector<nn::Split::Piece> pieces) {
    int64_t width = 0;
    for (const auto& piece : pieces) width += piece.width;
    return nn::Linear(weights, at + tail, width, c.hidden, dtype_,
                      {.bias = c.qkv_bias, .split = nn::Split::outputs(std::move(pieces))});
  };
  if (c.ling_names) {
    block.qkv = heads("query_key_value", {q, kv, kv});
  } else {
    block.q = heads("q_proj", {q});
    block.k = heads("k_proj", {kv});
    block.v = heads("v_proj", {kv});
  }
  block.out = nn::Linear(weights, at + (c.ling_names ? "dense" : "o_proj"), c.hidden, q.width,
                         dtype_, {.bias = c.out_bias, .split = nn::Split::inputs({q})});
  if (!c.qk_norm) return;
  block.q_norm =
      weights.vector(at + (c.ling_names ? "query_layernorm.weight" : "q_norm.weight"), c.head_dim);
  block.k_norm =
      weights.vector(at + (c.ling_names ? "key_layernorm.weight" : "k_norm.weight"), c.head_dim);
}

void Llada::load_experts(const nn::Weights& weights, int64_t index, const nn::Portion& portion,
                         Block& block) const {
  const LladaConfig& c = config_;
  const std::string name = fmt::format("model.layers.{}.mlp.", index);
  block.router.block = static_cast<int>(index);
  block.router.weight = weights.matrix(name + "gate.weight", c.experts, c.hidden, DType::f32);
  ops::RoutingOptions& o = block.router.options;
  o.score = c.sigmoid ? ops::RoutingOptions::Score::sigmoid : ops::RoutingOptions::Score::softmax;
  o.top_k = static_cast<int>(c.top_k);
  o.renormalise = c.renormalise;
  o.scale = static_cast<float>(c.scale);
  o.groups = static_cast<int>(c.groups);
  o.top_groups = static_cast<int>(c.top_groups);
  if (c.ranking_bias) o.bias = weights.vector(name + "gate.expert_bias", c.experts);
  const DType routed = portion.expert_dtype.value_or(dtype_);
  auto bank = std::make_shared<std::vector<ops::Expert>>();
  for (int64_t e = 0; e < c.experts; ++e)
    bank->push_back(portion.holds_expert(e) ? load_routed_expert(c, weights, index, e, routed)
                                            : ops::Expert{});
  if (c.shared_width > 0)
    block.experts.shared =
        nn::load_expert(weights, name + "shared_experts.", c.shared_width, c.hidden, dtype_);
  block.experts.routed = std::move(bank);
}

nn::PlacementPtr Llada::place(const nn::TokenView& view) const {
  std::vector<int64_t> positions;
  for (const nn::Segment& s : view.body)
    for (int64_t id = s.ids.begin; id < s.ids.end; ++id) positions.push_back(id);
  auto placement = std::make_shared<LladaPlacement>(view);
  const tensor::Device device =
      layers_.empty() ? tensor::Device::cpu : layers_[0].attention_norm.device();
  placement->rotary =
      ops::rotary_table(positions, config_.rotary_pairs, config_.rope_theta, device);
  return placement;
}

nn::Hidden Llada::embed(std::span<const int32_t> ids, const nn::TokenView& view) const {
  require(static_cast<int64_t>(ids.size()) == nn::token_count(view.body), ErrorCode::usage,
          "{} token ids for {} positions", ids.size(), nn::token_count(view.body));
  for (int32_t id : ids)
    require(id >= 0 && id < config_.vocabulary, ErrorCode::usage,
            "token id {} is outside the vocabulary of {}", id, config_.vocabulary);
  return {.tokens = {.prefix = {}, .body = ops::gather_rows(embedding_, ids, dtype_)}, .skips = {}};
}

Tensor Llada::normed(const Tensor& x, const Tensor& weight, int64_t width) const {
  if (!weight.defined()) return x;
  return ops::rms_norm(x,
                       {.weight = weight, .width = width, .eps = static_cast<float>(config_.eps)});
}

nn::Qkv Llada::heads_of(const Block& w, const Tensor& x, const ops::RotaryTable& rotary) const {
  const nn::AttentionSite& site = geometry_.attention.front();
  const int64_t wide = site.heads * config_.head_dim, kv = site.kv_heads * config_.head_dim;
  Tensor q, k, v;
  if (config_.ling_names) {
    const Tensor all = w.qkv(x);
    q = all.slice(1, 0, wide);
    k = all.slice(1, wide, wide + kv);
    v = all.slice(1, wide + kv, wide + 2 * kv);
  } else {
    q = w.q(x);
    k = w.k(x);
    v = w.v(x);
  }
  return {ops::rope(normed(q, w.q_norm, config_.head_dim), rotary, config_.head_dim),
          ops::rope(normed(k, w.k_norm, config_.head_dim), rotary, config_.head_dim), v};
}

void Llada::block(int index, const nn::StepContext&, const nn::Placement& placement,
                  nn::Hidden& hidden, const nn::Seams& seams) const {
  const Block& w = layers_.at(static_cast<size_t>(index - blocks_.begin));
  const auto& rotary = dynamic_cast<const LladaPlacement&>(placement).rotary;
  const nn::TokenView& view = placement.view;
  Tensor& x = hidden.tokens.body;

  const nn::Qkv heads = heads_of(w, normed(x, w.attention_norm), rotary);
  x = w.out(seams.attention.attend(index, view, heads), {.residual = x}, seams.reduce);

  const Tensor mlp_input = normed(x, w.feed_norm);
  if (w.expert_site >= 0) {
    x = ops::add(x, seams.experts.apply(w.expert_site, view, mlp_input, w.router, w.experts));
  } else {
    const Tensor inner =
        ops::matmul(mlp_input, w.dense.up, {.activation = ops::Activation::swiglu});
    x = nn::reduced_matmul(inner, w.dense.down, {.residual = x}, seams.reduce);
  }
}

Tensor Llada::logits(const nn::Hidden& hidden, const nn::TokenView& view,
                     const nn::Segments& of) const {
  const Tensor rows = nn::take_ranges(hidden.tokens.body, nn::places_of(view.body, of));
  return ops::matmul(normed(rows, final_norm_), head_, {.out = DType::f32, .out_as_input = false});
}

}  // namespace tessera::models
