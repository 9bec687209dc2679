#include "models/diffusion_gemma.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"
#include "nn/positions.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/sampling.h"

namespace tessera::models {
namespace {

constexpr const char* kCanvasStack = "model.decoder.";
constexpr const char* kTextStack = "model.encoder.language_model.";
constexpr auto kGated = ops::Activation::geglu;

struct GemmaPlacement : nn::Placement {
  using Placement::Placement;
  std::vector<ops::RotaryTable> rotary;  // by layer; equal forms share their tensors
};

nn::Geometry geometry_of(const DiffusionGemmaConfig& c) {
  nn::Geometry g;
  g.blocks = static_cast<int>(c.layers.size());
  g.hidden = c.hidden;
  g.channels_in = g.channels_out = c.vocabulary;
  for (int b = 0; b < g.blocks; ++b) {
    const auto& layer = c.layers[static_cast<size_t>(b)];
    g.attention.push_back({.block = b,
                           .heads = static_cast<int>(c.heads),
                           .kv_heads = static_cast<int>(layer.kv_heads),
                           .head_dim = static_cast<int>(layer.head_dim),
                           .causal_block = 1,
                           .window = layer.window,
                           .scale = 1});
    g.skip_from.push_back(-1);
  }
  for (int site = 0; site < g.blocks * (c.tied ? 1 : 2); ++site)
    g.experts.push_back(
        {site, static_cast<int>(c.experts), static_cast<int>(c.top_k), c.expert_width});
  return g;
}

bool same_angles(const DiffusionGemmaConfig::Layer& a, const DiffusionGemmaConfig::Layer& b) {
  return a.head_dim == b.head_dim && a.turned_pairs == b.turned_pairs && a.theta == b.theta;
}

float scalar_of(const nn::Weights& weights, const std::string& name) {
  const Tensor value = weights.vector(name, 1);
  return value.is_meta() ? 1.0f : value.to_floats().front();
}

}  // namespace

ops::Expert load_routed_expert(const DiffusionGemmaConfig& config, const nn::Weights& weights,
                               int64_t block, int64_t expert, DType dtype) {
  const auto layers = static_cast<int64_t>(config.layers.size());
  return nn::load_expert(
      weights,
      fmt::format("{}layers.{}.experts.{}.", block < layers ? kCanvasStack : kTextStack,
                  block % layers, expert),
      config.expert_width, config.hidden, dtype, kGated);
}

DiffusionGemma::DiffusionGemma(const DiffusionGemmaConfig& config, const nn::Weights& weights,
                               const nn::Portion& portion, DType dtype)
    : config_(config),
      dtype_(dtype),
      geometry_(geometry_of(config).of(weights.shard())),
      blocks_(portion.blocks) {
  const std::string canvas = kCanvasStack, text = kTextStack, table = "embed_tokens.weight";
  if (portion.embed) {
    const tensor::Shape shape{config.vocabulary, config.hidden};
    embedding_ = weights.get(canvas + table, shape);
    text_embedding_ = config.tied ? embedding_ : weights.get(text + table, shape);
    const std::string name = canvas + "self_conditioning.";
    conditioning_norm_ = weights.vector(name + "pre_norm.weight", config.hidden);
    // Every tensor-parallel shard has the whole MLP, because embed_canvas has no all-reduce.
    conditioning_ = {
        weights.paired(name + "gate_proj.weight", name + "up_proj.weight", config.dense_width,
                       config.hidden, dtype),
        weights.matrix(name + "down_proj.weight", config.hidden, config.dense_width, dtype),
        kGated};
    mean_embedding_ = ops::pack_transposed_weight(embedding_, dtype);
  }
  for (int64_t b = blocks_.begin; b < blocks_.end; ++b) {
    canvas_blocks_.push_back(load_block(weights, canvas, b, portion));
    text_blocks_.push_back(config.tied ? canvas_blocks_.back()
                                       : load_block(weights, text, b, portion));
    text_blocks_.back().scale =
        scalar_of(weights, fmt::format("{}layers.{}.layer_scalar", text, b));
  }
  if (!portion.head) return;
  final_norm_ = weights.vector(canvas + "norm.weight", config.hidden);
  head_ = weights.matrix(config.tied ? canvas + table : "lm_head.weight", config.vocabulary,
                         config.hidden, dtype);
}

DiffusionGemma::Block DiffusionGemma::load_block(const nn::Weights& weights,
                                                 const std::string& stack, int64_t index,
                                                 const nn::Portion& portion) const {
  const DiffusionGemmaConfig& c = config_;
  const auto& layer = c.layers[static_cast<size_t>(index)];
  const std::string name = fmt::format("{}layers.{}.", stack, index), at = name + "self_attn.";
  Block block;
  constexpr const char* kNorms[] = {"input_layernorm",
                                    "post_attention_layernorm",
                                    "pre_feedforward_layernorm",
                                    "post_feedforward_layernorm_1",
                                    "pre_feedforward_layernorm_2",
                                    "post_feedforward_layernorm_2",
                                    "post_feedforward_layernorm"};
  for (size_t i = 0; i < block.norms.size(); ++i)
    block.norms[i] = weights.vector(name + kNorms[i] + ".weight", c.hidden);
  const auto heads = [&](const char* tail, int64_t count) {
    const int64_t width = count * layer.head_dim;
    return nn::Linear(weights, at + tail, width, c.hidden, dtype_,
                      {.bias = c.bias, .split = nn::Split::outputs({{width, layer.head_dim}})});
  };
  block.q = heads("q_proj", c.heads);
  block.k = heads("k_proj", layer.kv_heads);
  if (layer.window > 0) block.v = heads("v_proj", layer.kv_heads);
  const int64_t width = c.heads * layer.head_dim;
  block.out = nn::Linear(weights, at + "o_proj", c.hidden, width, dtype_,
                         {.bias = c.bias, .split = nn::Split::inputs({{width, layer.head_dim}})});
  block.q_norm = weights.vector(at + "q_norm.weight", layer.head_dim);
  block.k_norm = weights.vector(at + "k_norm.weight", layer.head_dim);
  block.dense = nn::load_expert(weights, name + "mlp.", c.dense_width, c.hidden, dtype_, kGated);
  block.scale = scalar_of(weights, name + "layer_scalar");
  const auto layers = static_cast<int64_t>(c.layers.size());
  block.expert_site = static_cast<int>(stack == kCanvasStack ? index : layers + index);
  load_experts(weights, name, portion, block);
  return block;
}

void DiffusionGemma::load_experts(const nn::Weights& weights, const std::string& name,
                                  const nn::Portion& portion, Block& block) const {
  const DiffusionGemmaConfig& c = config_;
  block.router.block = block.expert_site;
  block.router.weight =
      weights.matrix(name + "router.proj.weight", c.experts, c.hidden, DType::f32);
  block.router.options = {.top_k = static_cast<int>(c.top_k), .renormalise = true};
  block.router.options.expert_scale = weights.vector(name + "router.per_expert_scale", c.experts);
  block.router_norm = ops::scale(weights.vector(name + "router.scale", c.hidden),
                                 1 / std::sqrt(static_cast<float>(c.hidden)));
  const DType dtype = portion.expert_dtype.value_or(dtype_);
  auto bank = std::make_shared<std::vector<ops::Expert>>();
  for (int64_t e = 0; e < c.experts; ++e)
    bank->push_back(portion.holds_expert(e)
                        ? load_routed_expert(c, weights, block.expert_site, e, dtype)
                        : ops::Expert{.activation = kGated});
  block.experts.routed = std::move(bank);
}

nn::PlacementPtr DiffusionGemma::place(const nn::TokenView& view) const {
  std::vector<int64_t> positions;
  for (const nn::Segment& s : view.body)
    for (int64_t id = s.ids.begin; id < s.ids.end; ++id) positions.push_back(id);
  auto placement = std::make_shared<GemmaPlacement>(view);
  const tensor::Device device =
      canvas_blocks_.empty() ? tensor::Device::cpu : canvas_blocks_[0].norms[0].device();
  const auto& layers = config_.layers;
  for (size_t b = 0; b < layers.size(); ++b) {
    const auto same = std::find_if(layers.begin(), layers.begin() + int64_t(b),
                                   [&](const auto& one) { return same_angles(one, layers[b]); });
    placement->rotary.push_back(same != layers.begin() + int64_t(b)
                                    ? placement->rotary[static_cast<size_t>(same - layers.begin())]
                                    : ops::rotary_table(positions, layers[b].head_dim / 2,
                                                        layers[b].theta, device,
                                                        layers[b].turned_pairs));
  }
  return placement;
}

Tensor DiffusionGemma::embedded(const Tensor& table, std::span<const int32_t> ids,
                                const nn::TokenView& view) const {
  require(static_cast<int64_t>(ids.size()) == nn::token_count(view.body), ErrorCode::usage,
          "{} token ids for {} positions", ids.size(), nn::token_count(view.body));
  for (int32_t id : ids)
    require(id >= 0 && id < config_.vocabulary, ErrorCode::usage,
            "token id {} is outside the vocabulary of {}", id, config_.vocabulary);
  return ops::scale(ops::gather_rows(table, ids, dtype_),
                    std::sqrt(static_cast<float>(config_.hidden)));
}

nn::Hidden DiffusionGemma::embed(std::span<const int32_t> ids, const nn::TokenView& view) const {
  return {.tokens = {.prefix = {}, .body = embedded(text_embedding_, ids, view)}, .skips = {}};
}

nn::Hidden DiffusionGemma::embed_canvas(std::span<const int32_t> ids, const nn::TokenView& view,
                                        const nn::EarlierLogits& earlier) const {
  Tensor x = embedded(embedding_, ids, view);
  nn::Segments conditioned;  // tokens of the view seen in an earlier pass
  for (const nn::Segment& s : view.body)
    for (const nn::Segment& e : earlier.tokens)
      if (e.sequence == s.sequence && e.ids.begin < s.ids.end && s.ids.begin < e.ids.end)
        conditioned.push_back(
            {s.sequence, {std::max(s.ids.begin, e.ids.begin), std::min(s.ids.end, e.ids.end)}});
  if (nn::token_count(conditioned) > 0) {
    const Tensor logits =
        nn::take_ranges(earlier.logits, nn::places_of(earlier.tokens, conditioned));
    const Tensor mean = ops::cast(ops::scale(ops::matmul(ops::softmax(logits), mean_embedding_),
                                             std::sqrt(static_cast<float>(config_.hidden))),
                                  dtype_);
    const Tensor inner =
        ops::matmul(normed(mean, conditioning_norm_), conditioning_.up, {.activation = kGated});
    const Tensor signal = ops::matmul(inner, conditioning_.down);
    int64_t at = 0;
    const Tensor whole = Tensor::zeros(x.shape(), dtype_, x.device());
    for (const nn::Range& rows : nn::places_of(view.body, conditioned)) {
      tensor::copy_into(whole.slice(0, rows.begin, rows.end),
                        signal.slice(0, at, at + rows.size()));
      at += rows.size();
    }
    x = ops::add(x, whole);
  }
  return {.tokens = {.prefix = {}, .body = normed(x, {})}, .skips = {}};
}

Tensor DiffusionGemma::normed(const Tensor& x, const Tensor& weight, int64_t width) const {
  return ops::rms_norm(x,
                       {.weight = weight, .width = width, .eps = static_cast<float>(config_.eps)});
}

nn::Qkv DiffusionGemma::heads_of(const Block& w, const DiffusionGemmaConfig::Layer& layer,
                                 const Tensor& x, const ops::RotaryTable& rotary) const {
  const Tensor k = w.k(x), v = layer.window > 0 ? w.v(x) : k;
  return {ops::rope(normed(w.q(x), w.q_norm, layer.head_dim), rotary, layer.head_dim),
          ops::rope(normed(k, w.k_norm, layer.head_dim), rotary, layer.head_dim),
          normed(v, {}, layer.head_dim)};
}

Tensor DiffusionGemma::routed(const Block& w, const nn::TokenView& view, const Tensor& x,
                              const nn::Seams& seams) const {
  nn::Router router = w.router;
  router.features = normed(x, w.router_norm);
  return seams.experts.apply(w.expert_site, view, normed(x, w.norms[expert_in]), router, w.experts);
}

void DiffusionGemma::block(int index, const nn::StepContext&, const nn::Placement& placement,
                           nn::Hidden& hidden, const nn::Seams& seams) const {
  const nn::TokenView& view = placement.view;
  const auto& blocks = view.canvas.empty() ? text_blocks_ : canvas_blocks_;
  const Block& w = blocks.at(static_cast<size_t>(index - blocks_.begin));
  const auto& layer = config_.layers[static_cast<size_t>(index)];
  const auto& rotary = dynamic_cast<const GemmaPlacement&>(placement).rotary;
  Tensor& x = hidden.tokens.body;

  const nn::Qkv heads =
      heads_of(w, layer, normed(x, w.norms[attention_in]), rotary[static_cast<size_t>(index)]);
  const Tensor seen = w.out(seams.attention.attend(index, view, heads), {}, seams.reduce);
  x = ops::add(x, normed(seen, w.norms[attention_out]));

  const Tensor inner =
      ops::matmul(normed(x, w.norms[dense_in]), w.dense.up, {.activation = kGated});
  const Tensor dense = nn::reduced_matmul(inner, w.dense.down, {}, seams.reduce);
  const Tensor both = ops::add(normed(dense, w.norms[dense_out]),
                               normed(routed(w, view, x, seams), w.norms[expert_out]));
  x = ops::scale(ops::add(x, normed(both, w.norms[feed_out])), w.scale);
}

Tensor DiffusionGemma::logits(const nn::Hidden& hidden, const nn::TokenView& view,
                              const nn::Segments& of) const {
  const Tensor chosen = nn::take_ranges(hidden.tokens.body, nn::places_of(view.body, of));
  const Tensor raw =
      ops::matmul(normed(chosen, final_norm_), head_, {.out = DType::f32, .out_as_input = false});
  return ops::softcap(raw, static_cast<float>(config_.logit_cap));
}

}  // namespace tessera::models
