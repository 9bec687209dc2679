#include "models/hunyuan_dit.h"

#include <algorithm>

#include "base/fail.h"
#include "nn/positions.h"

namespace tessera::models {
namespace {

constexpr int64_t kWaves = 256;      // channels of a sinusoidal embedding
constexpr int kPoolHeads = 8;        // heads of the attention that pools the T5 text
constexpr int64_t kSizeNumbers = 6;  // values of image_meta_size
constexpr int64_t kBaseGrid = 32;    // side in tokens of the position grid: 512 pixels, patch 2

struct HunyuanContext : nn::Context {
  Tensor text;                   // all sequences' tokens: [batch * length, channels]
  std::vector<nn::Range> spans;  // range of each sequence
  nn::PerBlock<nn::Qkv> heads;   // keys and values: the text does not change
  Tensor extra;                  // f32 [batch, hidden]
  ops::RotaryTable angles;       // angles of a sequence's tokens
};

nn::Geometry geometry_of(const HunyuanDitConfig& c) {
  nn::Geometry g = dit_geometry(c.num_layers, c.num_attention_heads, c.attention_head_dim, false);
  g.channels_in = c.in_channels;
  g.channels_out = c.out_channels();
  g.patch_size = {1, c.patch_size, c.patch_size};
  for (int b = g.blocks / 2 + 1; b < g.blocks; ++b)
    g.skip_from[static_cast<size_t>(b)] = g.blocks - 1 - b;
  return g;
}

// Prepends the mean of each sequence's tokens: [batch * (length + 1), channels].
Tensor with_mean(const Tensor& tokens, int64_t batch, const Tensor& embedding) {
  const int64_t length = tokens.size(0) / std::max<int64_t>(batch, 1), channels = tokens.size(1);
  const tensor::Shape shape{batch * (length + 1), channels};
  if (tokens.is_meta()) return Tensor::empty(shape, DType::f32, tokens.device());
  const Tensor text = tokens.to(tensor::Device::cpu), positions = embedding.to(tensor::Device::cpu),
               y = Tensor::empty(shape, DType::f32);
  for (int64_t r = 0; r < batch; ++r)
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (int64_t t = 0; t < length; ++t) {
        const float value = text.row<float>(r * length + t)[c];
        sum += double(value);
        y.row<float>(r * (length + 1) + t + 1)[c] = value + positions.row<float>(t + 1)[c];
      }
      y.row<float>(r * (length + 1))[c] =
          static_cast<float>(sum / double(length)) + positions.row<float>(0)[c];
    }
  return y.to(tokens.device());
}

}  // namespace

HunyuanDit::HunyuanDit(const HunyuanDitConfig& config, const nn::Weights& weights,
                       const nn::Portion& portion, DType dtype)
    : config_(config),
      dtype_(dtype),
      geometry_(geometry_of(config).of(weights.shard())),
      blocks_(portion.blocks) {
  const int64_t d = config.hidden();
  if (portion.conditioning) load_conditioning(weights);
  if (portion.embed)
    patch_ = PatchEmbed(weights, "pos_embed.proj", d, config.in_channels, config.patch_size, true,
                        dtype);
  if (portion.head) {
    final_modulation_ = nn::Linear(weights, "norm_out.linear", 2 * d, d, dtype);
    head_ = PatchHead(weights, config.patch_size * config.patch_size, config.out_channels(), d,
                      true, dtype);
  }
  for (int64_t b = blocks_.begin; b < blocks_.end; ++b) layers_.push_back(load_block(weights, b));
}

void HunyuanDit::load_conditioning(const nn::Weights& weights) {
  const int64_t d = config_.hidden(), t5 = config_.cross_attention_dim_t5;
  const int64_t pooled = config_.pooled_projection_dim, text = config_.cross_attention_dim;
  const std::string emb = "time_extra_emb.", pool = emb + "pooler.";
  time_ = Mlp(weights, emb + "timestep_embedder", kWaves, d, d, ops::Activation::silu, DType::f32);
  const bool sized = config_.use_style_cond_and_image_meta_size;
  extra_ = Mlp(weights, emb + "extra_embedder", pooled + (sized ? kSizeNumbers * kWaves + d : 0),
               4 * d, d, ops::Activation::silu, DType::f32);
  if (sized) styles_ = stored_f32(weights, emb + "style_embedder.weight", {1, d}, 1, d);
  const int64_t places = config_.text_len_t5 + 1, length = config_.text_len + config_.text_len_t5;
  pool_positions_ = stored_f32(weights, pool + "positional_embedding", {places, t5}, places, t5);
  pool_q_ = nn::Linear(weights, pool + "q_proj", t5, t5, DType::f32);
  pool_k_ = nn::Linear(weights, pool + "k_proj", t5, t5, DType::f32);
  pool_v_ = nn::Linear(weights, pool + "v_proj", t5, t5, DType::f32);
  pool_out_ = nn::Linear(weights, pool + "c_proj", pooled, t5, DType::f32);
  text_ = Mlp(weights, "text_embedder", t5, 4 * t5, text, ops::Activation::silu, dtype_);
  padding_ = stored_f32(weights, "text_embedding_padding", {length, text}, length, text);
}

HunyuanDit::Block HunyuanDit::load_block(const nn::Weights& weights, int64_t index) const {
  const int64_t d = config_.hidden(), dim = config_.attention_head_dim;
  const int64_t text = config_.cross_attention_dim;
  const std::string name = fmt::format("blocks.{}.", index);
  auto linear = [&](const char* part, int64_t in, const nn::Split& split = {}) {
    return nn::Linear(weights, name + part, d, in, dtype_, {.split = split});
  };
  auto norm = [&](const char* part, int64_t width) {
    return TokenNorm::load(weights, name + part, width, 1e-6f);
  };
  Block block;
  block.shift = linear("norm1.linear", d);
  block.norm1 = norm("norm1.norm", d);
  block.norm2 = norm("norm2", d);
  block.norm3 = norm("norm3", d);
  const nn::Split heads = split_heads(d, dim), batch = nn::Split::inputs({{d, dim}});
  auto head = [&](const char* part, int64_t in, const char* norm_name) -> NormedHeads {
    return {linear(part, in, heads), HeadNorm::layer(weights, name + norm_name, dim)};
  };
  block.self = {head("attn1.to_q", d, "attn1.norm_q"), head("attn1.to_k", d, "attn1.norm_k"),
                linear("attn1.to_v", d, heads)};
  block.self_out = linear("attn1.to_out.0", d, batch);
  block.cross = {head("attn2.to_q", d, "attn2.norm_q"), head("attn2.to_k", text, "attn2.norm_k"),
                 linear("attn2.to_v", text, heads)};
  block.cross_out = linear("attn2.to_out.0", d, batch);
  block.mlp = Mlp::of_block(weights, name + "ff", d,
                            static_cast<int64_t>(double(d) * config_.mlp_ratio), dtype_);
  if (geometry_.skip_from.at(static_cast<size_t>(index)) >= 0) {
    block.skip_norm = norm("skip_norm", 2 * d);
    block.skip = linear("skip_linear", 2 * d);
  }
  return block;
}

// Attention pooling of CLIP: the mean attends to all tokens and to the mean itself.
Tensor HunyuanDit::pooled_text(const Tensor& text, int64_t batch) const {
  const Tensor all = with_mean(text, batch, pool_positions_);
  const int64_t tokens_each = all.size(0) / std::max<int64_t>(batch, 1);
  nn::Segments first;
  std::vector<ops::AttentionSpan> spans;
  for (int r = 0; r < batch; ++r) {
    first.push_back({r, {0, 1}});
    spans.push_back({r, r + 1, r * tokens_each, (r + 1) * tokens_each});
  }
  const Tensor first_tokens = nn::take_tokens(all, tokens_each, first);
  return pool_out_(ops::attention(pool_q_(first_tokens), pool_k_(all), pool_v_(all), kPoolHeads,
                                  kPoolHeads, spans));
}

Tensor HunyuanDit::extra_embedding(const nn::Conditioning& conditioning, const Tensor& text,
                                   int64_t batch) const {
  const Tensor pooled = pooled_text(text, batch);
  if (!styles_.defined()) return extra_(pooled);
  const Tensor sizes = batch_input(conditioning, "image_meta_size", batch, kSizeNumbers)
                           .reshape({batch * kSizeNumbers});
  const Tensor style = optional_input(conditioning, "style");
  require(style.defined() && style.elements() == batch, ErrorCode::usage,
          "the transformer needs one 'style' for each of its {} sequences", batch);
  const std::vector<int32_t> ids(static_cast<size_t>(batch), 0);  // only a single style was trained
  return extra_(ops::concat_columns(
      {pooled, ops::timestep_embedding(sizes, kWaves).reshape({batch, kSizeNumbers * kWaves}),
       ops::gather_rows(styles_, ids, DType::f32)}));
}

// Concatenates both texts; padding has learned embeddings and is attended to.
Tensor HunyuanDit::all_text(const nn::Conditioning& conditioning, const Tensor& t5,
                            int64_t batch) const {
  const int64_t first = config_.text_len, second = config_.text_len_t5, all = first + second;
  int64_t length = 0;
  const Tensor clip = text_input(conditioning, "encoder_hidden_states", batch,
                                 config_.cross_attention_dim, &length);
  require(length == first, ErrorCode::usage, "'encoder_hidden_states' has {} tokens; expected {}",
          length, first);
  const Tensor projected = ops::cast(text_(ops::cast(t5, dtype_)), DType::f32);
  const Tensor table = ops::concat_rows({clip, projected, padding_});
  std::vector<int32_t> places;
  auto add = [&](const char* name, int64_t count, int64_t begin, int64_t pad, int64_t sequence) {
    const Tensor mask = optional_input(conditioning, name);
    require(!mask.defined() || mask.elements() == batch * count, ErrorCode::usage,
            "'{}' is {}; expected [{}, {}]", name, mask.shape().str(), batch, count);
    const bool has_mask = mask.defined() && !mask.is_meta();
    const std::vector<bool> ones = has_mask ? ones_of(mask) : std::vector<bool>();
    for (int64_t i = 0; i < count; ++i) {
      const bool real = !has_mask || ones[static_cast<size_t>(sequence * count + i)];
      places.push_back(static_cast<int32_t>(real ? begin + sequence * count + i : pad + i));
    }
  };
  for (int64_t r = 0; r < batch; ++r) {
    add("text_embedding_mask", first, 0, batch * all, r);
    add("text_embedding_mask_t5", second, batch * first, batch * all + first, r);
  }
  return ops::gather_rows(table, places, dtype_);
}

nn::ContextPtr HunyuanDit::prepare(const nn::Conditioning& conditioning,
                                   const nn::TokenShape& shape) const {
  auto context = std::make_shared<HunyuanContext>();
  int64_t length = 0;
  const Tensor t5 = text_input(conditioning, "encoder_hidden_states_t5", shape.batch,
                               config_.cross_attention_dim_t5, &length);
  require(length == config_.text_len_t5, ErrorCode::usage,
          "'encoder_hidden_states_t5' has {} tokens; expected {}", length, config_.text_len_t5);
  context->extra = extra_embedding(conditioning, t5, shape.batch);
  context->text = all_text(conditioning, t5, shape.batch);
  const int64_t tokens_each = config_.text_len + config_.text_len_t5;
  for (int64_t r = 0; r < shape.batch; ++r)
    context->spans.push_back({r * tokens_each, (r + 1) * tokens_each});
  const int64_t height = shape.grid[1], width = shape.grid[2];
  const int64_t pairs = config_.attention_head_dim / 2;
  const nn::GridRegion on = nn::centred_region(height, width, kBaseGrid, kBaseGrid);
  const auto left = nn::spread_places(on.left, on.right, width);
  const auto top = nn::spread_places(on.top, on.bottom, height);
  nn::RotaryAxis across{{}, pairs / 2}, down{{}, pairs / 2};
  for (double y : top)
    for (double x : left) across.places.push_back(x), down.places.push_back(y);
  context->angles = nn::rotary_axes({across, down}, t5.device());
  return context;
}

nn::PlacementPtr HunyuanDit::place(const nn::Context& context, const nn::TokenView& view) const {
  const auto& of = dynamic_cast<const HunyuanContext&>(context);
  auto placement = std::make_shared<DitPlacement>(of, view, of.text.device());
  placement->angles = nn::take_angles(of.angles, view.body);
  placement->sees = text_spans(view.body, of.spans);
  return placement;
}

nn::StepContextPtr HunyuanDit::at(const nn::Context& context, const Tensor& timestep) const {
  auto step = std::make_shared<DitStep>();
  step->condition =
      ops::silu(time_(ops::timestep_embedding(timestep, kWaves),
                      {.residual = dynamic_cast<const HunyuanContext&>(context).extra}));
  if (final_modulation_.weight()) step->final_modulation = final_modulation_(step->condition);
  return step;
}

nn::Hidden HunyuanDit::embed(const nn::Placement&, const Tensor& latent) const {
  return {.tokens = {.prefix = {}, .body = patch_(latent, {}, dtype_)}, .skips = {}};
}

void HunyuanDit::block(int index, const nn::StepContext& step, const nn::Placement& placement,
                       nn::Hidden& hidden, const nn::Seams& seams) const {
  const Block& w = layers_.at(static_cast<size_t>(index - blocks_.begin));
  const auto& p = dit(placement);
  const Tensor& shift = dit(step).of(index, {&w.shift})[0];
  const auto& context = p.in<HunyuanContext>();
  const nn::Qkv& text = context.heads.of(index, [&] {
    return nn::Qkv{{}, w.cross.k(context.text), w.cross.v(context.text)};
  });
  const int heads = geometry_.attention.at(static_cast<size_t>(index)).heads;
  Tensor& x = hidden.tokens.body;

  if (w.skip.weight()) {
    const auto from = hidden.skips.find(geometry_.skip_from.at(static_cast<size_t>(index)));
    require(from != hidden.skips.end(), ErrorCode::usage, "block {} misses its long skip", index);
    x = w.skip(w.skip_norm(ops::concat_columns({x, from->second})));
    hidden.skips.erase(from);
  }
  nn::Qkv qkv;
  if (seams.attention.needs_heads(index))
    qkv = w.self(w.norm1(x, shift, {}, p.sequences), p.angles);
  const Tensor attention = seams.attention.attend(index, p.view, qkv);
  x = w.self_out(attention, {.residual = x}, seams.reduce);
  const Tensor cross_attention =
      ops::attention(w.cross.q(w.norm2(x), p.angles), text.k, text.v, heads, heads, p.sees);
  x = w.cross_out(cross_attention, {.residual = x}, seams.reduce);
  x = w.mlp(w.norm3(x), {.residual = x}, seams.reduce);
  const auto& skips = geometry_.skip_from;
  if (std::find(skips.begin(), skips.end(), index) != skips.end()) hidden.skips[index] = x;
}

Tensor HunyuanDit::first_input(const nn::StepContext& step, const nn::Placement& placement,
                               const nn::Hidden& hidden, const nn::Seams&) const {
  const Block& w = layers_.at(static_cast<size_t>(-blocks_.begin));
  return w.norm1(hidden.tokens.body, dit(step).of(0, {&w.shift})[0], {}, dit(placement).sequences);
}

Tensor HunyuanDit::head(const nn::StepContext& step, const nn::Placement& placement,
                        const nn::Hidden& hidden) const {
  return head_(head_norm(step, placement, hidden.tokens.body, 1, 0));
}

}  // namespace tessera::models
