#include "models/dit_moe.h"

#include "base/fail.h"
#include "nn/positions.h"
#include "nn/token_layout.h"

namespace tessera::models {
namespace {

struct DitContext : nn::Context {
  Tensor label_embedding;  // f32 [batch, hidden]
  Tensor positions;        // f32 [tokens of a sequence, hidden]
};

nn::Geometry geometry_of(const DitMoeConfig& c) {
  nn::Geometry g = dit_geometry(c.depth, c.num_heads, c.head_dim(), false);
  g.channels_in = c.in_channels;
  g.channels_out = c.out_channels();
  g.patch_size = {1, c.patch_size, c.patch_size};
  for (int b = 0; b < g.blocks; ++b)
    g.experts.push_back({b, static_cast<int>(c.num_experts),
                         static_cast<int>(c.num_experts_per_tok), c.expert_width()});
  return g;
}

}  // namespace

DitMoe::DitMoe(const DitMoeConfig& config, const nn::Weights& weights, const nn::Portion& portion,
               DType dtype)
    : config_(config),
      dtype_(dtype),
      geometry_(geometry_of(config).of(weights.shard())),
      blocks_(portion.blocks) {
  load_ends(weights, portion);
  for (int64_t b = blocks_.begin; b < blocks_.end; ++b)
    layers_.push_back(load_block(weights, portion, b));
}

void DitMoe::load_ends(const nn::Weights& weights, const nn::Portion& portion) {
  const int64_t d = config_.hidden_size, p = config_.patch_size, c = config_.in_channels;
  const int64_t side = config_.input_size / p;
  if (portion.conditioning) {
    time_in_ =
        nn::Linear(weights, "t_embedder.mlp.0", d, config_.frequency_embedding_size, DType::f32);
    time_out_ = nn::Linear(weights, "t_embedder.mlp.2", d, d, DType::f32);
    labels_ = weights.get("y_embedder.embedding_table.weight", {config_.num_classes + 1, d});
  }
  if (portion.embed) {
    patch_ = PatchEmbed(weights, "x_embedder.proj", d, c, p, true, dtype_);
    positions_ = ops::cast(weights.get("pos_embed", {1, side * side, d}), DType::f32)
                     .reshape({side * side, d});
  }
  if (portion.head) {
    const int64_t out = config_.out_channels();
    final_modulation_ = nn::Linear(weights, "final_layer.adaLN_modulation.1", 2 * d, d, dtype_);
    const Tensor rows = weights.get("final_layer.linear.weight", {p * p * out, d});
    final_weight_ = ops::pack_weight(nn::channel_slowest(rows, p * p, out), dtype_);
    final_bias_ =
        nn::channel_slowest(weights.vector("final_layer.linear.bias", p * p * out), p * p, out);
  }
}

DitMoe::Block DitMoe::load_block(const nn::Weights& weights, const nn::Portion& portion,
                                 int64_t index) const {
  const int64_t d = config_.hidden_size, inner = config_.expert_width();
  const std::string name = fmt::format("blocks.{}.", index), attention = name + "attn.";
  Block block;
  const nn::Split::Piece heads{d, config_.head_dim()};
  block.qkv = nn::Linear(weights, attention + (config_.fused_qkv ? "Wqkv" : "qkv"), 3 * d, d,
                         dtype_, {.split = nn::Split::outputs({heads, heads, heads})});
  block.out = nn::Linear(weights, attention + (config_.fused_qkv ? "out_proj" : "proj"), d, d,
                         dtype_, {.split = nn::Split::inputs({heads})});
  if (config_.qk_norm) {
    block.q_norm = HeadNorm::layer(weights, attention + "q_norm", config_.head_dim());
    block.k_norm = HeadNorm::layer(weights, attention + "k_norm", config_.head_dim());
  }
  block.modulation = nn::Linear(weights, name + "adaLN_modulation.1", 6 * d, d, DType::f32);
  block.router.weight =
      weights.matrix(name + "moe.gate.weight", config_.num_experts, d, DType::f32);
  block.router.block = static_cast<int>(index);
  block.router.options.top_k = static_cast<int>(config_.num_experts_per_tok);
  block.router.options.renormalise = config_.norm_topk_prob;
  auto bank = std::make_shared<std::vector<ops::Expert>>();
  for (int64_t e = 0; e < config_.num_experts; ++e)
    bank->push_back(portion.holds_expert(e)
                        ? nn::load_expert(weights, fmt::format("{}moe.experts.{}.", name, e), inner,
                                          d, portion.expert_dtype.value_or(dtype_))
                        : ops::Expert{});
  if (config_.n_shared_experts > 0)
    block.experts.shared = nn::load_expert(weights, name + "moe.shared_experts.",
                                           config_.n_shared_experts * d, d, dtype_);
  block.experts.routed = std::move(bank);
  return block;
}

nn::ContextPtr DitMoe::prepare(const nn::Conditioning& conditioning,
                               const nn::TokenShape& shape) const {
  const auto labels = conditioning.tensors.find("y");
  require(labels != conditioning.tensors.end() && labels->second.elements() == shape.batch,
          ErrorCode::usage, "a DiT-MoE needs one class label 'y' for each of its {} sequences",
          shape.batch);
  auto context = std::make_shared<DitContext>();
  std::vector<int32_t> ids(static_cast<size_t>(shape.batch));
  if (!labels->second.is_meta()) {
    const auto classes = labels->second.to_ints();
    for (size_t i = 0; i < ids.size(); ++i) {
      require(classes[i] >= 0 && classes[i] <= config_.num_classes, ErrorCode::usage,
              "class {} does not exist: this model has classes 0 to {} ({} is unconditional)",
              classes[i], config_.num_classes - 1, config_.num_classes);
      ids[i] = static_cast<int32_t>(classes[i]);
    }
  }
  context->label_embedding = ops::gather_rows(labels_, ids, DType::f32);
  if (!positions_.defined()) return context;
  const int64_t side = config_.input_size / config_.patch_size;
  if (shape.grid[1] == side && shape.grid[2] == side) {
    context->positions = positions_;
  } else if (positions_.is_meta()) {
    const auto half = [&] {
      return Tensor::empty({shape.tokens(), config_.hidden_size / 2}, DType::f32,
                           tensor::Device::meta);
    };
    context->positions = ops::concat_columns({half(), half()});  // order of the published table
  } else {                                                       // image size differs from training
    context->positions = nn::sincos_grid(nn::even_places(shape.grid[1]),
                                         nn::even_places(shape.grid[2]), config_.hidden_size)
                             .to(positions_.device());
  }
  return context;
}

nn::PlacementPtr DitMoe::place(const nn::Context& context, const nn::TokenView& view) const {
  const auto& of = dynamic_cast<const DitContext&>(context);
  return std::make_shared<DitPlacement>(of, view, of.label_embedding.device());
}

nn::StepContextPtr DitMoe::at(const nn::Context& context, const Tensor& timestep) const {
  auto step = std::make_shared<DitStep>();
  const Tensor waves = ops::timestep_embedding(timestep, config_.frequency_embedding_size);
  const Tensor& label = dynamic_cast<const DitContext&>(context).label_embedding;
  step->condition = ops::silu(
      time_out_(time_in_(waves, {.activation = ops::Activation::silu}), {.residual = label}));
  if (final_weight_) step->final_modulation = final_modulation_(step->condition);
  return step;
}

nn::Hidden DitMoe::embed(const nn::Placement& placement, const Tensor& latent) const {
  const DitContext& context = dit(placement).in<DitContext>();
  const Tensor places = nn::take_tokens(context.positions, 0, placement.view.body);
  return {.tokens = {.prefix = {}, .body = patch_(latent, places, dtype_)}, .skips = {}};
}

void DitMoe::block(int index, const nn::StepContext& step, const nn::Placement& placement,
                   nn::Hidden& hidden, const nn::Seams& seams) const {
  const Block& w = layers_.at(static_cast<size_t>(index - blocks_.begin));
  const auto& p = dit(placement);
  const Tensor& m = dit(step).of(index, {&w.modulation})[0];
  const int64_t d = config_.hidden_size;
  const TokenNorm norm;
  Tensor& x = hidden.tokens.body;

  nn::Qkv heads;
  if (seams.attention.needs_heads(index)) {
    const Tensor qkv = w.qkv(norm(x, part(m, 0, d), part(m, 1, d), p.sequences));
    const int64_t width = qkv.size(1) / 3;
    heads = {w.q_norm(part(qkv, 0, width)), w.k_norm(part(qkv, 1, width)), part(qkv, 2, width)};
  }
  const Tensor attention = seams.attention.attend(index, p.view, heads);
  x = w.out(attention, gated(m, 2, p.sequences, x), seams.reduce);

  const Tensor mlp_input = norm(x, part(m, 3, d), part(m, 4, d), p.sequences);
  const Tensor mixed = seams.experts.apply(index, p.view, mlp_input, w.router, w.experts);
  x = ops::add_gated(x, mixed, part(m, 5, d), p.sequences);
}

Tensor DitMoe::first_input(const nn::StepContext& step, const nn::Placement& placement,
                           const nn::Hidden& hidden, const nn::Seams&) const {
  const Block& w = layers_.at(static_cast<size_t>(-blocks_.begin));
  const Tensor& m = dit(step).of(0, {&w.modulation})[0];
  const int64_t d = config_.hidden_size;
  return TokenNorm()(hidden.tokens.body, part(m, 0, d), part(m, 1, d), dit(placement).sequences);
}

Tensor DitMoe::head(const nn::StepContext& step, const nn::Placement& placement,
                    const nn::Hidden& hidden) const {
  const Tensor x = head_norm(step, placement, hidden.tokens.body, 0, 1);
  return ops::matmul(x, final_weight_,
                     {.bias = final_bias_, .out = DType::f32, .out_as_input = false});
}

}  // namespace tessera::models
