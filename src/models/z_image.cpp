#include "models/z_image.h"

#include <algorithm>
#include <numeric>

#include "base/fail.h"
#include "nn/positions.h"
#include "nn/token_layout.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/permute.h"

namespace tessera::models {
namespace {

constexpr int64_t kWaves = 256, kTimeWidth = 1024;  // channels of the time embedding

struct ZImageContext : nn::Context {
  Tensor text;                   // [sum of lengths, dim], packed
  std::vector<int64_t> lengths;  // padded length of each sequence
  nn::TokenShape shape;
  tensor::Device device = tensor::Device::cpu;

  int64_t first(int sequence) const {
    return std::accumulate(lengths.begin(), lengths.begin() + sequence, int64_t{0});
  }
};

struct ZImagePlacement : DitPlacement {
  using DitPlacement::DitPlacement;
  ops::RowMap both_rows;  // caption tokens, then image tokens
  ops::RotaryTable both_angles;
  std::vector<int32_t> extra;  // positions of padding in the body
};

nn::Geometry geometry_of(const ZImageConfig& c) {
  nn::Geometry g = dit_geometry(c.blocks(), c.n_heads, c.head_dim(), true);
  for (int64_t b = 0; b < c.n_refiner_layers; ++b)
    g.attention[static_cast<size_t>(b)].joint = g.attention[static_cast<size_t>(b)].prefix_queries =
        false;
  g.channels_in = g.channels_out = c.in_channels;
  g.patch_size = {1, c.patch_size, c.patch_size};
  return g;
}

// Positions on the three axes: caption tokens count along the first axis, image tokens follow,
// padding of the image is at 0.
ops::RotaryTable angles_of(const ZImageConfig& config, const ZImageContext& context,
                           const nn::TokenView& view) {
  std::vector<nn::RotaryAxis> axes(3);
  for (size_t i = 0; i < 3; ++i) axes[i].pairs = config.axes_dims[i] / 2;
  const auto add = [&](int64_t first, int64_t line, int64_t column) {
    axes[0].places.push_back(double(first));
    axes[1].places.push_back(double(line));
    axes[2].places.push_back(double(column));
  };
  const int64_t columns = context.shape.grid[2], latent = context.shape.latent_tokens();
  for (const auto* segments : {&view.prefix, &view.body})
    for (const nn::Segment& s : *segments)
      for (int64_t id = s.ids.begin; id < s.ids.end; ++id) {
        const int64_t length = context.lengths.at(static_cast<size_t>(s.sequence));
        if (id >= latent)
          add(0, 0, 0);
        else if (id >= 0)
          add(length + 1, id / columns, id % columns);
        else
          add(1 + length + id, 0, 0);
      }
  return nn::rotary_axes(axes, context.device, config.rope_theta);
}

int64_t filled_up(int64_t tokens) {
  return (tokens + kZImageMultiple - 1) / kZImageMultiple * kZImageMultiple;
}

// Overwrites the rows of y at `places` with the given row.
void put_row(const Tensor& row, const Tensor& y, const std::vector<int32_t>& places) {
  if (!places.empty()) ops::move_rows(row, std::vector<int32_t>(places.size(), 0), y, places);
}

}  // namespace

ZImage::ZImage(const ZImageConfig& config, const nn::Weights& weights, const nn::Portion& portion,
               DType dtype)
    : config_(config),
      dtype_(dtype),
      geometry_(geometry_of(config).of(weights.shard())),
      blocks_(portion.blocks) {
  const int64_t d = config.dim, width = std::min(d, kWaves), p = config.patch_size;
  const int64_t patch = p * p * config.in_channels;
  const std::string form = fmt::format("{}-1", p);
  if (portion.conditioning) {
    time_in_ = nn::Linear(weights, "t_embedder.mlp.0", kTimeWidth, kWaves, DType::f32);
    time_out_ = nn::Linear(weights, "t_embedder.mlp.2", width, kTimeWidth, DType::f32);
  }
  if (portion.embed) {
    const Tensor filter = weights.get("all_x_embedder." + form + ".weight", {d, patch});
    const int64_t sizes[] = {d, p * p, config.in_channels};
    const int order[] = {0, 2, 1};
    image_in_ =
        ops::pack_weight(ops::permute(filter.contiguous(), sizes, order, {d, patch}), dtype);
    image_bias_ = weights.vector("all_x_embedder." + form + ".bias", d);
    image_pad_ = stored_f32(weights, "x_pad_token", {1, d}, 1, d);
    caption_norm_ = weights.vector("cap_embedder.0.weight", config.cap_feat_dim);
    caption_in_ = nn::Linear(weights, "cap_embedder.1", d, config.cap_feat_dim, dtype);
    caption_pad_ = stored_f32(weights, "cap_pad_token", {1, d}, 1, d);
    for (int64_t i = 0; i < config.n_refiner_layers; ++i)
      refiners_.push_back(load(weights, fmt::format("context_refiner.{}.", i), true));
  }
  if (portion.head) {
    const std::string name = "all_final_layer." + form + ".";
    final_modulation_ = nn::Linear(weights, name + "adaLN_modulation.1", d, width, dtype);
    head_ = ops::pack_weight(nn::channel_slowest(weights.get(name + "linear.weight", {patch, d}),
                                                 p * p, config.in_channels),
                             dtype);
    head_bias_ =
        nn::channel_slowest(weights.vector(name + "linear.bias", patch), p * p, config.in_channels);
  }
  for (int64_t b = blocks_.begin; b < blocks_.end; ++b)
    layers_.push_back(load(weights,
                           b < config.n_refiner_layers
                               ? fmt::format("noise_refiner.{}.", b)
                               : fmt::format("layers.{}.", b - config.n_refiner_layers),
                           false));
}

ZImage::Block ZImage::load(const nn::Weights& weights, const std::string& name,
                           bool of_caption) const {
  const int64_t d = config_.dim, dim = config_.head_dim(), inner = config_.inner();
  const auto linear = [&](const std::string& part, int64_t n, int64_t k, const nn::Split& split) {
    return nn::Linear(weights, name + part, n, k, dtype_,
                      {.bias = false, .split = of_caption ? nn::Split{} : split});
  };
  const auto heads = [&](const char* which) {
    return linear(std::string("attention.to_") + which, d, d, split_heads(d, dim));
  };
  const auto norm = [&](const char* which) {
    return config_.qk_norm
               ? HeadNorm{weights.vector(name + "attention.norm_" + which + ".weight", dim),
                          {},
                          1e-5f}
               : HeadNorm{};
  };
  Block block;
  block.heads = {{heads("q"), norm("q")}, {heads("k"), norm("k")}, heads("v")};
  block.out = linear("attention.to_out.0", d, d, nn::Split::inputs({{d, dim}}));
  const char* const norms[] = {"attention_norm1", "attention_norm2", "ffn_norm1", "ffn_norm2"};
  for (size_t i = 0; i < 4; ++i) block.norms[i] = weights.vector(name + norms[i] + ".weight", d);
  const std::string feed = name + "feed_forward.w";
  if (of_caption) {
    block.gate = linear("feed_forward.w1", inner, d, {});
    block.up = linear("feed_forward.w3", inner, d, {});
    block.down = linear("feed_forward.w2", d, inner, {});
    return block;
  }
  const nn::Cut columns = nn::Split::outputs({{inner}}).of(weights.shard()),
                rows = nn::Split::inputs({{inner}}).of(weights.shard());
  block.mlp = {weights.paired(feed + "1.weight", feed + "3.weight", inner, d, dtype_, columns),
               weights.matrix(feed + "2.weight", d, inner, dtype_, rows), ops::Activation::swiglu};
  block.modulation =
      nn::Linear(weights, name + "adaLN_modulation.0", 4 * d, std::min(d, kWaves), dtype_);
  return block;
}

std::string ZImage::block_name(int index) const {
  const int64_t first = config_.n_refiner_layers;
  return index < first ? fmt::format("noise_refiner.{}", index)
                       : fmt::format("block.{}", index - first);
}

Tensor ZImage::normed(const Tensor& x, const Tensor& weight, const Tensor& scale,
                      const ops::RowMap& row_of) const {
  return ops::rms_norm(x, {.weight = weight,
                           .scale = scale,
                           .row_of = row_of,
                           .eps = static_cast<float>(config_.norm_eps)});
}

// Runs the caption's refiner blocks, once a request because they do not depend on time.
Tensor ZImage::refined(const Tensor& caption, const std::vector<ops::AttentionSpan>& spans,
                       const ops::RotaryTable& angles) const {
  Tensor x = caption;
  const int heads = static_cast<int>(config_.n_heads);
  for (const Block& w : refiners_) {
    const nn::Qkv qkv = w.heads(normed(x, w.norms[0]), angles);
    const Tensor attention_output = w.out(ops::attention(qkv.q, qkv.k, qkv.v, heads, heads, spans));
    x = ops::add(x, normed(attention_output, w.norms[1]));
    const Tensor mlp_input = normed(x, w.norms[2]);
    x = ops::add(x, normed(w.down(ops::swiglu(w.gate(mlp_input), w.up(mlp_input))), w.norms[3]));
  }
  return x;
}

// Text [rows without padding, cap_feat_dim] with these lengths -> caption tokens.
Tensor ZImage::caption_tokens(const Tensor& text, const std::vector<int64_t>& lengths,
                              int64_t padded_rows) const {
  const Tensor rows = caption_in_(ops::cast(
      ops::rms_norm(text, {.weight = caption_norm_, .eps = static_cast<float>(config_.norm_eps)}),
      dtype_));
  const Tensor all = Tensor::empty({padded_rows, config_.dim}, dtype_, text.device());
  std::vector<int32_t> real, padding;
  int32_t at = 0;
  for (const int64_t length : lengths)
    for (int64_t i = 0; i < filled_up(length); ++i) (i < length ? real : padding).push_back(at++);
  ops::move_rows(rows, {}, all, real);
  put_row(caption_pad_, all, padding);
  return all;
}

nn::ContextPtr ZImage::prepare(const nn::Conditioning& conditioning,
                               const nn::TokenShape& shape) const {
  auto context = std::make_shared<ZImageContext>();
  int64_t length = 0;
  const Tensor text =
      text_input(conditioning, "cap_feats", shape.batch, config_.cap_feat_dim, &length);
  const Tensor mask = optional_input(conditioning, "cap_feats_mask");
  const PackedText packed = pack_text(text, mask);
  std::vector<int64_t> lengths(static_cast<size_t>(shape.batch), length);
  for (size_t r = 0; r < packed.spans.size(); ++r) lengths[r] = packed.spans[r].size();
  std::vector<ops::AttentionSpan> spans;
  nn::TokenView captions;
  int64_t padded_rows = 0, longest = 0;
  for (int s = 0; s < shape.batch; ++s) {
    const int64_t own = filled_up(lengths[static_cast<size_t>(s)]);
    context->lengths.push_back(own);
    captions.prefix.push_back({s, {-own, 0}});
    spans.push_back({padded_rows, padded_rows + own, padded_rows, padded_rows + own});
    padded_rows += own;
    longest = std::max(longest, own);
  }
  require(longest <= shape.prefix || text.is_meta(), ErrorCode::usage,
          "'cap_feats' has {} tokens, filled up to {}; the request {}", length, longest,
          shape.prefix);
  const auto& most = config_.axes_lens;
  require(
      longest + 1 < most[0] && shape.grid[1] <= most[1] && shape.grid[2] <= most[2],
      ErrorCode::usage,
      "{} text tokens and an image of {} x {} tokens (width x height): this model has positions "
      "for {} and {} x {} at most",
      longest, shape.grid[2], shape.grid[1], most[0] - 2, most[2], most[1]);
  context->shape = shape;
  context->device = text.device();
  if (caption_in_.weight())
    context->text = refined(caption_tokens(packed.tokens, lengths, padded_rows), spans,
                            angles_of(config_, *context, captions));
  return context;
}

nn::PlacementPtr ZImage::place(const nn::Context& context, const nn::TokenView& view) const {
  const auto& of = dynamic_cast<const ZImageContext&>(context);
  auto placement = std::make_shared<ZImagePlacement>(of, view, of.device);
  nn::Segments segments = view.prefix;
  segments.insert(segments.end(), view.body.begin(), view.body.end());
  placement->both_rows = ops::RowMap(nn::sequences_of(segments), of.device);
  placement->both_angles = angles_of(config_, of, view);
  const auto& [cos, sin] = placement->both_angles;
  const int64_t text = nn::token_count(view.prefix);
  placement->angles = {apart(cos, text).body, apart(sin, text).body};
  int32_t at = 0;
  for (const nn::Segment& s : view.body)
    for (int64_t id = s.ids.begin; id < s.ids.end; ++id, ++at)
      if (id >= of.shape.latent_tokens()) placement->extra.push_back(at);
  return placement;
}

nn::StepContextPtr ZImage::at(const nn::Context&, const Tensor& timestep) const {
  auto step = std::make_shared<DitStep>();
  Tensor whole = Tensor::empty(timestep.shape(), DType::f32);
  std::fill_n(whole.data<float>(), whole.elements(), 1000.0f);
  // The network's time runs backwards. The pipeline divides and the model multiplies, both in f32.
  const Tensor left = ops::blend(timestep, -1, whole.to(timestep.device()), 1);
  const Tensor waves =
      ops::timestep_embedding(ops::scale(left, static_cast<float>(config_.t_scale), 1000), kWaves);
  step->condition = time_out_(time_in_(waves, {.activation = ops::Activation::silu}));
  if (final_modulation_.weight())
    step->final_modulation = final_modulation_(ops::silu(step->condition));
  return step;
}

nn::Hidden ZImage::embed(const nn::Placement& placement, const Tensor& latent) const {
  const auto& p = dynamic_cast<const ZImagePlacement&>(placement);
  const auto& context = p.in<ZImageContext>();
  std::vector<nn::Range> rows;
  for (const nn::Segment& s : p.view.prefix) {
    const int64_t end =
        context.first(s.sequence) + context.lengths.at(static_cast<size_t>(s.sequence));
    rows.push_back({end + s.ids.begin, end + s.ids.end});
  }
  const Tensor body =
      ops::matmul(latent, image_in_, {.bias = image_bias_, .out = dtype_, .out_as_input = false});
  put_row(image_pad_, body, p.extra);
  return {.tokens = {.prefix = nn::take_ranges(context.text, rows), .body = body}, .skips = {}};
}

const std::vector<Tensor>& ZImage::modulations(int index, const Block& w, const DitStep& at) const {
  return at.modulation.of(index, [&] {
    const Tensor modulation = w.modulation(at.condition);
    std::vector<Tensor> parts;
    for (int64_t i = 0; i < 4; ++i) {
      const Tensor chunk = part(modulation, i, config_.dim).contiguous();
      parts.push_back(i % 2 == 0 ? chunk : ops::softcap(chunk, 1));
    }
    return parts;
  });
}

void ZImage::block(int index, const nn::StepContext& step, const nn::Placement& placement,
                   nn::Hidden& hidden, const nn::Seams& seams) const {
  const Block& w = layers_.at(static_cast<size_t>(index - blocks_.begin));
  const auto& p = dynamic_cast<const ZImagePlacement&>(placement);
  const DitStep& at = dit(step);
  const std::vector<Tensor>& m = modulations(index, w, at);
  const bool refines = index < config_.n_refiner_layers;
  const ops::RowMap& rows = refines ? p.sequences : p.both_rows;
  Tensor x = refines ? hidden.tokens.body : together(hidden.tokens);

  nn::Qkv heads;
  if (seams.attention.needs_heads(index))
    heads = w.heads(normed(x, w.norms[0], m[0], rows), refines ? p.angles : p.both_angles);
  const Tensor attention_output =
      w.out(seams.attention.attend(index, p.view, heads), {}, seams.reduce);
  x = ops::add_gated(x, normed(attention_output, w.norms[1]), m[1], rows);
  const Tensor inner =
      ops::matmul(normed(x, w.norms[2], m[2], rows), w.mlp.up, {.activation = w.mlp.activation});
  const Tensor mlp_output = nn::reduced_matmul(inner, w.mlp.down, {}, seams.reduce);
  x = ops::add_gated(x, normed(mlp_output, w.norms[3]), m[3], rows);
  hidden.tokens =
      refines ? nn::Joint{hidden.tokens.prefix, x} : apart(x, hidden.tokens.prefix.size(0));
}

Tensor ZImage::first_input(const nn::StepContext& step, const nn::Placement& placement,
                           const nn::Hidden& hidden, const nn::Seams&) const {
  const int index = reusable().first;
  const Block& w = layers_.at(static_cast<size_t>(index - blocks_.begin));
  return normed(together(hidden.tokens), w.norms[0], modulations(index, w, dit(step))[0],
                dynamic_cast<const ZImagePlacement&>(placement).both_rows);
}

Tensor ZImage::head(const nn::StepContext& step, const nn::Placement& placement,
                    const nn::Hidden& hidden) const {
  const auto& p = dynamic_cast<const ZImagePlacement&>(placement);
  const Tensor x = TokenNorm()(hidden.tokens.body, {}, dit(step).final_modulation, p.sequences);
  const Tensor out =
      ops::matmul(x, head_, {.bias = head_bias_, .out = DType::f32, .out_as_input = false});
  if (!p.extra.empty())  // padding is not denoised
    ops::move_rows(out, std::vector<int32_t>(p.extra.size(), -1), out, p.extra);
  return out;
}

}  // namespace tessera::models
