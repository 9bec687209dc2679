#include "models/pixart.h"

#include "base/fail.h"
#include "nn/positions.h"

namespace tessera::models {
namespace {

constexpr int64_t kWaves = 256;  // channels of a sinusoidal embedding

struct PixartContext : nn::Context {
  std::vector<nn::Range> text;       // of each row
  std::vector<Tensor> keys, values;  // per block of the portion: the text does not change
  Tensor size;                       // f32 [rows, hidden] or undefined
  Tensor positions;                  // f32 [tokens of a row, hidden]
};

struct PixartStep : nn::StepContext {
  const PixartContext* context = nullptr;
  std::vector<Tensor> modulation;  // per block of the portion, f32 [rows, 6 * hidden]
  Tensor final_modulation;         // f32 [rows, 2 * hidden]
};

nn::Geometry geometry_of(const PixartConfig& c) {
  nn::Geometry g;
  g.blocks = static_cast<int>(c.num_layers);
  g.hidden = c.hidden();
  g.channels_in = c.in_channels;
  g.channels_out = c.out_channels;
  g.patch_size = {1, c.patch_size, c.patch_size};
  const int heads = static_cast<int>(c.num_attention_heads);
  for (int b = 0; b < g.blocks; ++b) {
    g.attention.push_back({.block = b,
                           .heads = heads,
                           .kv_heads = heads,
                           .head_dim = static_cast<int>(c.attention_head_dim)});
    g.skip_from.push_back(-1);
  }
  return g;
}

}  // namespace

Pixart::Pixart(const PixartConfig& config, const nn::Weights& weights, const nn::Portion& portion,
               DType dtype)
    : config_(config), dtype_(dtype), geometry_(geometry_of(config)), blocks_(portion.blocks) {
  const int64_t d = config.hidden();
  const std::string emb = "adaln_single.emb.";
  time_ = TwoLinears(weights, emb + "timestep_embedder", kWaves, d, d, ops::Activation::silu,
                     DType::f32);
  if (config.use_additional_conditions) {
    resolution_ = TwoLinears(weights, emb + "resolution_embedder", kWaves, d / 3, d / 3,
                             ops::Activation::silu, DType::f32);
    aspect_ = TwoLinears(weights, emb + "aspect_ratio_embedder", kWaves, d / 3, d / 3,
                         ops::Activation::silu, DType::f32);
  }
  modulation_ = nn::Linear(weights, "adaln_single.linear", 6 * d, d, dtype);
  caption_ = TwoLinears(weights, "caption_projection", config.caption_channels, d, d,
                        ops::Activation::gelu_tanh, dtype);
  if (portion.embed)
    patch_ = PatchEmbed(weights, "pos_embed.proj", d, config.in_channels, config.patch_size, true,
                        dtype);
  if (portion.head) {
    final_modulation_ = stored_f32(weights, "scale_shift_table", {2, d}, 1, 2 * d);
    head_ = PatchHead(weights, config.patch_size * config.patch_size, config.out_channels, d, true,
                      dtype);
  }
  for (int64_t b = blocks_.begin; b < blocks_.end; ++b) layers_.push_back(load_block(weights, b));
}

Pixart::Block Pixart::load_block(const nn::Weights& weights, int64_t index) const {
  const int64_t d = config_.hidden(), text = config_.cross_attention_dim;
  const std::string name = fmt::format("transformer_blocks.{}.", index);
  auto linear = [&](const std::string& part, int64_t in, bool bias) {
    return nn::Linear(weights, name + part, d, in, dtype_, bias);
  };
  const bool bias = config_.attention_bias;
  Block block;
  block.self = {linear("attn1.to_q", d, bias),
                linear("attn1.to_k", d, bias),
                linear("attn1.to_v", d, bias),
                {},
                {}};
  block.self_out = linear("attn1.to_out.0", d, true);
  block.cross_q = linear("attn2.to_q", d, bias);
  block.cross_k = linear("attn2.to_k", text, bias);
  block.cross_v = linear("attn2.to_v", text, bias);
  block.cross_out = linear("attn2.to_out.0", d, true);
  block.feed_forward = TwoLinears::feed_forward(weights, name + "ff", d, 4 * d, dtype_);
  block.modulation = stored_f32(weights, name + "scale_shift_table", {6, d}, 1, 6 * d);
  return block;
}

// Embedding of the picture's size: two numbers of resolution, then the aspect ratio.
Tensor Pixart::size_embedding(const nn::Conditioning& conditioning, int64_t rows) const {
  const Tensor pixels = row_input(conditioning, "resolution", rows, 2).reshape({rows * 2});
  const Tensor ratio = row_input(conditioning, "aspect_ratio", rows, 1).reshape({rows});
  const int64_t third = config_.hidden() / 3;
  const Tensor of_pixels =
      resolution_(ops::timestep_embedding(pixels, kWaves)).reshape({rows, 2 * third});
  return ops::concat_columns({of_pixels, aspect_(ops::timestep_embedding(ratio, kWaves))});
}

nn::ContextPtr Pixart::prepare(const nn::Conditioning& conditioning,
                               const nn::TokenShape& shape) const {
  auto context = std::make_shared<PixartContext>();
  int64_t length = 0;
  const Tensor given = text_input(conditioning, "encoder_hidden_states", shape.rows,
                                  config_.caption_channels, &length);
  PackedText text = pack_text(given, optional_input(conditioning, "encoder_attention_mask"));
  for (int64_t r = static_cast<int64_t>(text.spans.size()); r < shape.rows; ++r)
    text.spans.push_back({r * length, (r + 1) * length});
  context->text = text.spans;
  const Tensor projected = caption_(ops::cast(text.tokens, dtype_));
  for (const Block& block : layers_) {
    context->keys.push_back(block.cross_k(projected));
    context->values.push_back(block.cross_v(projected));
  }
  if (config_.use_additional_conditions) context->size = size_embedding(conditioning, shape.rows);
  const int64_t base = config_.sample_size / config_.patch_size;
  auto places = [&](int64_t count) {
    return nn::even_places(count, 0, double(base) / double(count) / config_.interpolation_scale);
  };
  context->positions =
      given.is_meta()
          ? Tensor::empty({shape.tokens(), config_.hidden()}, DType::f32, given.device())
          : nn::sincos_grid(places(shape.grid[1]), places(shape.grid[2]), config_.hidden())
                .to(given.device());
  return context;
}

nn::StepContextPtr Pixart::at(const nn::Context& context, const Tensor& timestep) const {
  auto step = std::make_shared<PixartStep>();
  step->context = &dynamic_cast<const PixartContext&>(context);
  const Tensor time =
      time_(ops::timestep_embedding(timestep, kWaves), {.residual = step->context->size});
  const Tensor shared = modulation_(ops::silu(time));
  for (const Block& block : layers_)
    step->modulation.push_back(ops::add_row(shared, block.modulation));
  if (final_modulation_.defined())
    step->final_modulation = ops::add_row(ops::concat_columns({time, time}), final_modulation_);
  return step;
}

nn::Hidden Pixart::embed(const nn::StepContext& step, const Tensor& latent,
                         const nn::TokenView& view) const {
  const PixartContext& context = *dynamic_cast<const PixartStep&>(step).context;
  const Tensor places = nn::take_tokens(context.positions, 0, view.body);
  return {.tokens = {.prefix = {}, .body = patch_(latent, places, dtype_)}, .skips = {}};
}

void Pixart::block(int index, const nn::StepContext& step, const nn::TokenView& view,
                   nn::Hidden& hidden, const nn::Seams& seams) const {
  const size_t local = static_cast<size_t>(index - blocks_.begin);
  const Block& w = layers_.at(local);
  const PixartStep& at = dynamic_cast<const PixartStep&>(step);
  const Tensor& m = at.modulation.at(local);
  const std::vector<int32_t> rows = nn::rows_of(view.body);
  const int64_t d = config_.hidden();
  const TokenNorm norm;
  Tensor& x = hidden.tokens.body;

  const nn::Heads heads = w.self(norm(x, part(m, 0, d), part(m, 1, d), rows));
  const Tensor seen = seams.attention.attend(index, view, {}, heads).body;
  x = w.self_out(seen, {.gate = part(m, 2, d), .row_of = rows, .residual = x});
  const Tensor read =
      cross_attention(w.cross_q(x), at.context->keys.at(local), at.context->values.at(local),
                      config_.num_attention_heads, view.body, at.context->text);
  x = w.cross_out(read, {.residual = x});
  const Tensor fed = norm(x, part(m, 3, d), part(m, 4, d), rows);
  x = w.feed_forward(fed, {.gate = part(m, 5, d), .row_of = rows, .residual = x});
}

Tensor Pixart::head(const nn::StepContext& step, const nn::TokenView& view,
                    const nn::Hidden& hidden) const {
  const Tensor& m = dynamic_cast<const PixartStep&>(step).final_modulation;
  const std::vector<int32_t> rows = nn::rows_of(view.body);
  const int64_t d = config_.hidden();
  return head_(TokenNorm()(hidden.tokens.body, part(m, 0, d), part(m, 1, d), rows));
}

}  // namespace tessera::models
