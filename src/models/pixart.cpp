#include "models/pixart.h"

#include "base/fail.h"
#include "nn/positions.h"

namespace tessera::models {
namespace {

constexpr int64_t kWaves = 256;  // channels of a sinusoidal embedding

struct PixartContext : nn::Context {
  Tensor text;                   // tokens of all sequences, packed: [sum of lengths, hidden]
  std::vector<nn::Range> spans;  // range of each sequence
  nn::PerBlock<nn::Qkv> heads;   // keys and values: the text does not change
  Tensor size;                   // f32 [batch, hidden] or undefined
  Tensor positions;              // f32 [tokens of a sequence, hidden]
};

nn::Geometry geometry_of(const PixartConfig& c) {
  nn::Geometry g = dit_geometry(c.num_layers, c.num_attention_heads, c.attention_head_dim, false);
  g.channels_in = c.in_channels;
  g.channels_out = c.out_channels;
  g.patch_size = {1, c.patch_size, c.patch_size};
  return g;
}

}  // namespace

Pixart::Pixart(const PixartConfig& config, const nn::Weights& weights, const nn::Portion& portion,
               DType dtype)
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
    final_modulation_ = stored_f32(weights, "scale_shift_table", {2, d}, 1, 2 * d);
    head_ = PatchHead(weights, config.patch_size * config.patch_size, config.out_channels, d, true,
                      dtype);
  }
  for (int64_t b = blocks_.begin; b < blocks_.end; ++b) layers_.push_back(load_block(weights, b));
}

void Pixart::load_conditioning(const nn::Weights& weights) {
  const int64_t d = config_.hidden();
  const auto embedder = [&](const char* name, int64_t width) {
    return Mlp(weights, std::string("adaln_single.emb.") + name, kWaves, width, width,
               ops::Activation::silu, DType::f32);
  };
  time_ = embedder("timestep_embedder", d);
  if (config_.use_additional_conditions) {
    resolution_ = embedder("resolution_embedder", d / 3);
    aspect_ = embedder("aspect_ratio_embedder", d / 3);
  }
  modulation_ = nn::Linear(weights, "adaln_single.linear", 6 * d, d, dtype_);
  caption_ = Mlp(weights, "caption_projection", config_.caption_channels, d, d,
                 ops::Activation::gelu_tanh, dtype_);
}

Pixart::Block Pixart::load_block(const nn::Weights& weights, int64_t index) const {
  const int64_t d = config_.hidden(), text = config_.cross_attention_dim;
  const std::string name = fmt::format("transformer_blocks.{}.", index);
  const int64_t dim = config_.attention_head_dim;
  auto heads = [&](const std::string& part, int64_t in) {
    return nn::Linear(weights, name + part, d, in, dtype_,
                      {.bias = config_.attention_bias, .split = split_heads(d, dim)});
  };
  auto out = [&](const std::string& part) {
    return nn::Linear(weights, name + part, d, d, dtype_, {.split = nn::Split::inputs({{d, dim}})});
  };
  Block block;
  block.self = {{heads("attn1.to_q", d), {}}, {heads("attn1.to_k", d), {}}, heads("attn1.to_v", d)};
  block.self_out = out("attn1.to_out.0");
  block.cross_q = heads("attn2.to_q", d);
  block.cross_k = heads("attn2.to_k", text);
  block.cross_v = heads("attn2.to_v", text);
  block.cross_out = out("attn2.to_out.0");
  block.mlp = Mlp::of_block(weights, name + "ff", d, 4 * d, dtype_);
  block.modulation = stored_f32(weights, name + "scale_shift_table", {6, d}, 1, 6 * d);
  return block;
}

// Embedding of the image size: two values of resolution, then the aspect ratio.
Tensor Pixart::size_embedding(const nn::Conditioning& conditioning, int64_t batch) const {
  const Tensor pixels = batch_input(conditioning, "resolution", batch, 2).reshape({batch * 2});
  const Tensor ratio = batch_input(conditioning, "aspect_ratio", batch, 1).reshape({batch});
  const int64_t third = config_.hidden() / 3;
  const Tensor of_pixels =
      resolution_(ops::timestep_embedding(pixels, kWaves)).reshape({batch, 2 * third});
  return ops::concat_columns({of_pixels, aspect_(ops::timestep_embedding(ratio, kWaves))});
}

nn::ContextPtr Pixart::prepare(const nn::Conditioning& conditioning,
                               const nn::TokenShape& shape) const {
  auto context = std::make_shared<PixartContext>();
  int64_t length = 0;
  const Tensor states = text_input(conditioning, "encoder_hidden_states", shape.batch,
                                   config_.caption_channels, &length);
  const Tensor mask = optional_input(conditioning, "encoder_attention_mask");
  require(!mask.defined() || mask.size(0) == shape.batch, ErrorCode::usage,
          "'encoder_attention_mask' is {}; expected [{}, {}]", mask.shape().str(), shape.batch,
          length);
  PackedText text = pack_text(states, mask);
  for (int64_t r = static_cast<int64_t>(text.spans.size()); r < shape.batch; ++r)
    text.spans.push_back({r * length, (r + 1) * length});
  context->spans = text.spans;
  context->text = caption_(ops::cast(text.tokens, dtype_));
  if (config_.use_additional_conditions) context->size = size_embedding(conditioning, shape.batch);
  const int64_t base = config_.sample_size / config_.patch_size;
  auto places = [&](int64_t count) {
    return nn::even_places(count, 0, double(base) / double(count) / config_.interpolation_scale);
  };
  context->positions =
      states.is_meta()
          ? Tensor::empty({shape.tokens(), config_.hidden()}, DType::f32, states.device())
          : nn::sincos_grid(places(shape.grid[1]), places(shape.grid[2]), config_.hidden())
                .to(states.device());
  return context;
}

nn::PlacementPtr Pixart::place(const nn::Context& context, const nn::TokenView& view) const {
  const auto& of = dynamic_cast<const PixartContext&>(context);
  auto placement = std::make_shared<DitPlacement>(of, view, of.text.device());
  placement->sees = text_spans(view.body, of.spans);
  return placement;
}

nn::StepContextPtr Pixart::at(const nn::Context& context, const Tensor& timestep) const {
  auto step = std::make_shared<DitStep>();
  const Tensor time = time_(ops::timestep_embedding(timestep, kWaves),
                            {.residual = dynamic_cast<const PixartContext&>(context).size});
  step->condition = modulation_(ops::silu(time));  // shared; each block adds a table
  if (final_modulation_.defined())
    step->final_modulation = ops::add_row(ops::concat_columns({time, time}), final_modulation_);
  return step;
}

nn::Hidden Pixart::embed(const nn::Placement& placement, const Tensor& latent) const {
  const PixartContext& context = dit(placement).in<PixartContext>();
  const Tensor places = nn::take_tokens(context.positions, 0, placement.view.body);
  return {.tokens = {.prefix = {}, .body = patch_(latent, places, dtype_)}, .skips = {}};
}

const Tensor& Pixart::modulation_of(int index, const Block& w, const nn::StepContext& step) const {
  const DitStep& at = dit(step);
  return at.modulation.of(index,
                          [&] { return std::vector{ops::add_row(at.condition, w.modulation)}; })[0];
}

void Pixart::block(int index, const nn::StepContext& step, const nn::Placement& placement,
                   nn::Hidden& hidden, const nn::Seams& seams) const {
  const Block& w = layers_.at(static_cast<size_t>(index - blocks_.begin));
  const auto& p = dit(placement);
  const Tensor& m = modulation_of(index, w, step);
  const auto& context = p.in<PixartContext>();
  const nn::Qkv& text = context.heads.of(index, [&] {
    return nn::Qkv{{}, w.cross_k(context.text), w.cross_v(context.text)};
  });
  const int64_t d = config_.hidden();
  const int heads = geometry_.attention.at(static_cast<size_t>(index)).heads;
  const TokenNorm norm;
  Tensor& x = hidden.tokens.body;

  nn::Qkv qkv;
  if (seams.attention.needs_heads(index))
    qkv = w.self(norm(x, part(m, 0, d), part(m, 1, d), p.sequences));
  const Tensor attention = seams.attention.attend(index, p.view, qkv);
  x = w.self_out(attention, gated(m, 2, p.sequences, x), seams.reduce);
  const Tensor read = ops::attention(w.cross_q(x), text.k, text.v, heads, heads, p.sees);
  x = w.cross_out(read, {.residual = x}, seams.reduce);
  const Tensor mlp_input = norm(x, part(m, 3, d), part(m, 4, d), p.sequences);
  x = w.mlp(mlp_input, gated(m, 5, p.sequences, x), seams.reduce);
}

Tensor Pixart::first_input(const nn::StepContext& step, const nn::Placement& placement,
                           const nn::Hidden& hidden, const nn::Seams&) const {
  const Block& w = layers_.at(static_cast<size_t>(-blocks_.begin));
  const Tensor& m = modulation_of(0, w, step);
  const int64_t d = config_.hidden();
  return TokenNorm()(hidden.tokens.body, part(m, 0, d), part(m, 1, d), dit(placement).sequences);
}

Tensor Pixart::head(const nn::StepContext& step, const nn::Placement& placement,
                    const nn::Hidden& hidden) const {
  return head_(head_norm(step, placement, hidden.tokens.body, 0, 1));
}

}  // namespace tessera::models
