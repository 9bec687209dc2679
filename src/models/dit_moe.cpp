#include "models/dit_moe.h"

#include <cmath>

#include "base/fail.h"
#include "nn/token_layout.h"
#include "ops/elementwise.h"
#include "ops/norm.h"

namespace tessera::models {
namespace {

struct DitContext : nn::Context {
  Tensor label_embedding;  // f32 [rows, hidden]
  Tensor positions;        // f32 [tokens of a row, hidden]
};

struct DitStep : nn::StepContext {
  const DitContext* context = nullptr;
  std::vector<Tensor> modulation;  // per block of the portion, f32 [rows, 6 * hidden]
  Tensor final_modulation;         // f32 [rows, 2 * hidden]
};

Tensor part(const Tensor& modulation, int64_t i, int64_t width) {
  return modulation.slice(1, i * width, (i + 1) * width);
}

nn::Geometry geometry_of(const DitMoeConfig& c) {
  nn::Geometry g;
  g.blocks = static_cast<int>(c.depth);
  g.hidden = c.hidden_size;
  g.channels_in = c.in_channels;
  g.channels_out = c.out_channels();
  g.patch_size = {1, c.patch_size, c.patch_size};
  for (int b = 0; b < g.blocks; ++b) {
    const int heads = static_cast<int>(c.num_heads);
    g.attention.push_back({.block = b,
                           .heads = heads,
                           .kv_heads = heads,
                           .head_dim = static_cast<int>(c.head_dim())});
    g.experts.push_back({b, static_cast<int>(c.num_experts),
                         static_cast<int>(c.num_experts_per_tok), c.expert_width()});
    g.skip_from.push_back(-1);
  }
  return g;
}

}  // namespace

Tensor sincos_positions(int64_t height, int64_t width, int64_t dim) {
  Tensor table = Tensor::empty({height * width, dim}, DType::f32);
  const int64_t quarter = dim / 4;
  for (int64_t t = 0; t < height * width; ++t) {
    float* row = table.row<float>(t);
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t i = 0; i < quarter; ++i) {
        const double place = static_cast<double>(half == 0 ? t % width : t / width);
        const double angle = place * std::pow(10000.0, -double(i) / double(quarter));
        row[half * 2 * quarter + i] = static_cast<float>(std::sin(angle));
        row[half * 2 * quarter + quarter + i] = static_cast<float>(std::cos(angle));
      }
  }
  return table;
}

DitMoe::DitMoe(const DitMoeConfig& config, const nn::Weights& weights, const nn::Portion& portion,
               DType dtype)
    : config_(config), dtype_(dtype), geometry_(geometry_of(config)), blocks_(portion.blocks) {
  load_ends(weights, portion);
  for (int64_t b = blocks_.begin; b < blocks_.end; ++b)
    layers_.push_back(load_block(weights, portion, b));
}

void DitMoe::load_ends(const nn::Weights& weights, const nn::Portion& portion) {
  const int64_t d = config_.hidden_size, p = config_.patch_size, c = config_.in_channels;
  const int64_t side = config_.input_size / p;
  time_in_ =
      nn::Linear(weights, "t_embedder.mlp.0", d, config_.frequency_embedding_size, DType::f32);
  time_out_ = nn::Linear(weights, "t_embedder.mlp.2", d, d, DType::f32);
  labels_ = weights.get("y_embedder.embedding_table.weight", {config_.num_classes + 1, d});
  if (portion.embed) {
    const Tensor patch = weights.get("x_embedder.proj.weight", {d, c, p, p});
    patch_weight_ = ops::pack_weight(patch.reshape({d, c * p * p}), dtype_);
    patch_bias_ = weights.vector("x_embedder.proj.bias", d);
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
  block.qkv =
      nn::Linear(weights, attention + (config_.fused_qkv ? "Wqkv" : "qkv"), 3 * d, d, dtype_);
  block.out =
      nn::Linear(weights, attention + (config_.fused_qkv ? "out_proj" : "proj"), d, d, dtype_);
  if (config_.qk_norm) {
    const int64_t width = config_.head_dim();
    block.q_norm_weight = weights.vector(attention + "q_norm.weight", width);
    block.q_norm_bias = weights.vector(attention + "q_norm.bias", width);
    block.k_norm_weight = weights.vector(attention + "k_norm.weight", width);
    block.k_norm_bias = weights.vector(attention + "k_norm.bias", width);
  }
  block.modulation = nn::Linear(weights, name + "adaLN_modulation.1", 6 * d, d, DType::f32);
  block.router.weight =
      weights.matrix(name + "moe.gate.weight", config_.num_experts, d, DType::f32);
  block.router.block = static_cast<int>(index);
  block.router.options.top_k = static_cast<int>(config_.num_experts_per_tok);
  block.router.options.renormalise = config_.norm_topk_prob;
  auto expert = [&](const std::string& prefix, int64_t width, DType dtype) -> ops::Expert {
    return {weights.paired(prefix + "gate_proj.weight", prefix + "up_proj.weight", width, d, dtype),
            weights.matrix(prefix + "down_proj.weight", d, width, dtype)};
  };
  auto bank = std::make_shared<std::vector<ops::Expert>>();
  for (int64_t e = 0; e < config_.num_experts; ++e)
    bank->push_back(portion.holds_expert(e) ? expert(fmt::format("{}moe.experts.{}.", name, e),
                                                     inner, portion.expert_dtype.value_or(dtype_))
                                            : ops::Expert{});
  if (config_.n_shared_experts > 0)
    block.experts.shared =
        expert(name + "moe.shared_experts.", config_.n_shared_experts * d, dtype_);
  block.experts.routed = std::move(bank);
  return block;
}

nn::ContextPtr DitMoe::prepare(const nn::Conditioning& conditioning,
                               const nn::TokenShape& shape) const {
  const auto labels = conditioning.tensors.find("y");
  require(labels != conditioning.tensors.end() && labels->second.elements() == shape.rows,
          ErrorCode::usage, "a DiT-MoE needs one class label 'y' for each of its {} rows",
          shape.rows);
  auto context = std::make_shared<DitContext>();
  std::vector<int32_t> ids(static_cast<size_t>(shape.rows));
  if (!labels->second.is_meta()) {
    const auto wanted = labels->second.to_ints();
    for (size_t i = 0; i < ids.size(); ++i) {
      require(wanted[i] >= 0 && wanted[i] <= config_.num_classes, ErrorCode::usage,
              "class {} does not exist: this model has classes 0 to {} ({} is unconditional)",
              wanted[i], config_.num_classes - 1, config_.num_classes);
      ids[i] = static_cast<int32_t>(wanted[i]);
    }
  }
  context->label_embedding = ops::gather_rows(labels_, ids, DType::f32);
  if (!positions_.defined()) return context;
  const int64_t side = config_.input_size / config_.patch_size;
  if (shape.grid[1] == side && shape.grid[2] == side) {
    context->positions = positions_;
  } else if (positions_.is_meta()) {
    context->positions =
        Tensor::empty({shape.tokens(), config_.hidden_size}, DType::f32, tensor::Device::meta);
  } else {  // another picture size than the trained one
    context->positions =
        sincos_positions(shape.grid[1], shape.grid[2], config_.hidden_size).to(positions_.device());
  }
  return context;
}

nn::StepContextPtr DitMoe::at(const nn::Context& context, const Tensor& timestep) const {
  auto step = std::make_shared<DitStep>();
  step->context = &dynamic_cast<const DitContext&>(context);
  const Tensor waves = ops::timestep_embedding(timestep, config_.frequency_embedding_size);
  const Tensor time = time_out_(time_in_(waves, {.activation = ops::Activation::silu}),
                                {.residual = step->context->label_embedding});
  const Tensor condition = ops::silu(time);
  for (const Block& block : layers_) step->modulation.push_back(block.modulation(condition));
  if (final_weight_) step->final_modulation = final_modulation_(condition);
  return step;
}

nn::Hidden DitMoe::embed(const nn::StepContext& step, const Tensor& latent,
                         const nn::TokenView& view) const {
  const DitContext& context = *dynamic_cast<const DitStep&>(step).context;
  std::vector<int32_t> ids;
  for (const nn::Segment& s : view.body)
    for (int64_t id = s.ids.begin; id < s.ids.end; ++id) ids.push_back(static_cast<int32_t>(id));
  const Tensor places = ops::gather_rows(context.positions, ids, DType::f32);
  const Tensor x = ops::matmul(latent, patch_weight_, {.bias = patch_bias_, .residual = places});
  return {.tokens = {.prefix = {}, .body = ops::cast(x, dtype_)}, .skips = {}};
}

Tensor DitMoe::normed_heads(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
  if (!weight.defined()) return x;
  return ops::layer_norm(x, {.weight = weight, .bias = bias, .width = config_.head_dim()});
}

void DitMoe::block(int index, const nn::StepContext& step, const nn::TokenView& view,
                   nn::Hidden& hidden, const nn::Seams& seams) const {
  const size_t local = static_cast<size_t>(index - blocks_.begin);
  const Block& w = layers_.at(local);
  const Tensor& m = dynamic_cast<const DitStep&>(step).modulation.at(local);
  const std::vector<int32_t> rows = nn::rows_of(view.body);
  const int64_t d = config_.hidden_size;
  Tensor& x = hidden.tokens.body;

  const Tensor before =
      ops::layer_norm(x, {.shift = part(m, 0, d), .scale = part(m, 1, d), .row_of = rows});
  const Tensor qkv = w.qkv(before);
  const Tensor q = normed_heads(part(qkv, 0, d), w.q_norm_weight, w.q_norm_bias);
  const Tensor k = normed_heads(part(qkv, 1, d), w.k_norm_weight, w.k_norm_bias);
  const nn::Joint seen = seams.attention.attend(index, view, {}, {q, k, part(qkv, 2, d)});
  x = w.out(seen.body, {.gate = part(m, 2, d), .row_of = rows, .residual = x});

  const Tensor fed =
      ops::layer_norm(x, {.shift = part(m, 3, d), .scale = part(m, 4, d), .row_of = rows});
  const Tensor mixed = seams.experts.apply(index, view, fed, w.router, w.experts);
  x = ops::add_gated(x, mixed, part(m, 5, d), rows);
}

Tensor DitMoe::head(const nn::StepContext& step, const nn::TokenView& view,
                    const nn::Hidden& hidden) const {
  const Tensor& m = dynamic_cast<const DitStep&>(step).final_modulation;
  const std::vector<int32_t> rows = nn::rows_of(view.body);
  const int64_t d = config_.hidden_size;
  const Tensor x = ops::layer_norm(
      hidden.tokens.body, {.shift = part(m, 0, d), .scale = part(m, 1, d), .row_of = rows});
  return ops::matmul(x, final_weight_,
                     {.bias = final_bias_, .out = DType::f32, .out_as_input = false});
}

}  // namespace tessera::models
