#include "models/dit_parts.h"

#include "base/fail.h"
#include "nn/token_layout.h"
#include "ops/norm.h"

namespace tessera::models {

Mlp::Mlp(const nn::Weights& weights, const std::string& name, int64_t in, int64_t inner,
         int64_t out, ops::Activation activation, DType dtype)
    : first_(weights, name + ".linear_1", inner, in, dtype),
      second_(weights, name + ".linear_2", out, inner, dtype),
      activation_(activation) {}

Mlp Mlp::of_block(const nn::Weights& weights, const std::string& name, int64_t dim, int64_t inner,
                  DType dtype) {
  Mlp result;
  result.first_ = nn::Linear(weights, name + ".net.0.proj", inner, dim, dtype,
                             {.split = nn::Split::outputs({{inner}})});
  result.second_ = nn::Linear(weights, name + ".net.2", dim, inner, dtype,
                              {.split = nn::Split::inputs({{inner}})});
  result.activation_ = ops::Activation::gelu_tanh;
  return result;
}

Mlp Mlp::gated_block(const nn::Weights& weights, const std::string& name, int64_t dim,
                     int64_t inner, DType dtype) {
  Mlp result;
  result.first_ = nn::Linear(weights, name + ".linear_in", 2 * inner, dim, dtype,
                             {.bias = false, .split = nn::Split::outputs({{inner}, {inner}})});
  result.second_ = nn::Linear(weights, name + ".linear_out", dim, inner, dtype,
                              {.bias = false, .split = nn::Split::inputs({{inner}})});
  result.activation_ = ops::Activation::swiglu;
  return result;
}

Tensor Mlp::operator()(const Tensor& x, const ops::MatmulOptions& last, nn::Reduce* reduce) const {
  if (activation_ == ops::Activation::swiglu) {
    const Tensor wide = first_(x);
    const int64_t half = wide.size(1) / 2;
    return second_(ops::swiglu(part(wide, 0, half), part(wide, 1, half)), last, reduce);
  }
  return second_(first_(x, {.activation = activation_}), last, reduce);
}

nn::Joint Mlp::both(const Mlp& of_prefix, const Mlp& of_body, const nn::Joint& x,
                    const ops::MatmulOptions& prefix, const ops::MatmulOptions& body,
                    nn::Reduce* reduce) {
  if (of_body.activation_ == ops::Activation::swiglu) {
    const Tensor body_output = of_body(x.body, body, reduce);
    return {.prefix = of_prefix(x.prefix, prefix, reduce), .body = body_output, .both = {}};
  }
  ops::MatmulGroup group;
  const auto wide = [&](const Mlp& mlp, const Tensor& of) {
    return mlp.first_(of, {.activation = mlp.activation_, .group = &group});
  };
  const auto narrow = [&](const Mlp& mlp, const Tensor& of, ops::MatmulOptions last) {
    last.group = &group;
    return mlp.second_(of, last, reduce);
  };
  const Tensor wide_body = wide(of_body, x.body), wide_prefix = wide(of_prefix, x.prefix);
  group.run();
  nn::Joint y{.prefix = {}, .body = narrow(of_body, wide_body, body), .both = {}};
  y.prefix = narrow(of_prefix, wide_prefix, prefix);
  group.run();
  return y;
}

HeadNorm HeadNorm::rms(const nn::Weights& weights, const std::string& name, int64_t dim) {
  return {weights.vector(name + ".weight", dim), {}};
}

HeadNorm HeadNorm::layer(const nn::Weights& weights, const std::string& name, int64_t dim) {
  return {weights.vector(name + ".weight", dim), weights.vector(name + ".bias", dim)};
}

Tensor HeadNorm::operator()(const Tensor& x, const Tensor& into,
                            const ops::RotaryTable& angles) const {
  if (!weight.defined()) return x;
  const ops::NormOptions options{.weight = weight,
                                 .bias = bias,
                                 .shift = {},
                                 .scale = {},
                                 .row_of = {},
                                 .width = weight.size(0),
                                 .eps = eps,
                                 .into = into,
                                 .turn = angles};
  return bias.defined() ? ops::layer_norm(x, options) : ops::rms_norm(x, options);
}

Tensor NormedHeads::operator()(const Tensor& x, const ops::RotaryTable& angles,
                               const Tensor& into) const {
  ops::MatmulGroup alone;
  const Tensor projection = product(x, into, alone);
  alone.run();
  return finish(projection, angles, into);
}

Tensor NormedHeads::product(const Tensor& x, const Tensor& into, ops::MatmulGroup& group) const {
  return linear(x, {.into = norm.weight.defined() ? Tensor() : into, .group = &group});
}

Tensor NormedHeads::finish(const Tensor& product, const ops::RotaryTable& angles,
                           const Tensor& into) const {
  return norm.weight.defined() ? norm(product, into, angles) : product;
}

nn::Qkv Projections::operator()(const Tensor& x, const ops::RotaryTable& angles,
                                const nn::Qkv& into) const {
  ops::MatmulGroup group;
  const nn::Qkv qkv = products(x, into, group);
  group.run();
  return finish(qkv, angles, into);
}

nn::Qkv Projections::products(const Tensor& x, const nn::Qkv& into, ops::MatmulGroup& group) const {
  return {q.linear.weight() ? q.product(x, into.q, group) : Tensor(), k.product(x, into.k, group),
          v(x, {.into = into.v, .group = &group})};
}

nn::Qkv Projections::finish(const nn::Qkv& products, const ops::RotaryTable& angles,
                            const nn::Qkv& into) const {
  return {products.q.defined() ? q.finish(products.q, angles, into.q) : Tensor(),
          k.finish(products.k, angles, into.k), products.v};
}

void Projections::both(const Projections& of_prefix, const Projections& of_body, const nn::Joint& x,
                       const ops::RotaryTable& angles, const nn::Qkv& heads,
                       const ops::RotaryTable& prefix_angles) {
  const int64_t text = x.prefix.size(0);
  const nn::Qkv prefix = part_of(heads, 0, text), body = part_of(heads, text, heads.k.size(0));
  ops::MatmulGroup group;
  const nn::Qkv body_qkv = of_body.products(x.body, body, group);
  const nn::Qkv prefix_qkv = of_prefix.products(x.prefix, prefix, group);
  group.run();
  of_body.finish(body_qkv, angles, body);
  of_prefix.finish(prefix_qkv, prefix_angles, prefix);
}

nn::Qkv Projections::room(const Tensor& x, int64_t tokens, int64_t silent) const {
  const auto empty = [&](int64_t batch) {
    return Tensor::empty({batch, v.weight()->n}, x.dtype(), x.device());
  };
  return {empty(tokens - silent), empty(tokens), empty(tokens)};
}

nn::Qkv part_of(const nn::Qkv& heads, int64_t begin, int64_t end) {
  const int64_t silent = heads.k.size(0) - heads.q.size(0);
  return {heads.q.slice(0, std::max<int64_t>(begin - silent, 0), end - silent),
          heads.k.slice(0, begin, end), heads.v.slice(0, begin, end)};
}

nn::Joint apart(const Tensor& joined, int64_t prefix_tokens) {
  return {joined.slice(0, 0, prefix_tokens), joined.slice(0, prefix_tokens, joined.size(0)),
          joined};
}

Tensor together(const nn::Joint& streams) {
  return streams.both.defined() ? streams.both : ops::concat_rows({streams.prefix, streams.body});
}

TokenNorm TokenNorm::load(const nn::Weights& weights, const std::string& name, int64_t dim,
                          float eps) {
  return {weights.vector(name + ".weight", dim), weights.vector(name + ".bias", dim), eps};
}

Tensor TokenNorm::operator()(const Tensor& x, const Tensor& shift, const Tensor& scale,
                             const ops::RowMap& row_of) const {
  return ops::layer_norm(x, {.weight = weight,
                             .bias = bias,
                             .shift = shift,
                             .scale = scale,
                             .row_of = row_of,
                             .width = 0,
                             .eps = eps,
                             .into = {}});
}

Tensor stored_f32(const nn::Weights& weights, const std::string& name, const tensor::Shape& shape,
                  int64_t rows, int64_t columns) {
  return ops::cast(weights.get(name, shape), DType::f32).reshape({rows, columns});
}

RowTable::RowTable(const nn::Weights& weights, const std::string& name, const tensor::Shape& shape,
                   int64_t rows, int64_t columns) {
  nn::FetchedWeight table =
      weights.fetch({.form = nn::WeightRequest::Form::table, .name = name, .shape = shape});
  table_ = table.tensor.reshape({rows, columns});
  bring_ = std::move(table.at_use);
}

Tensor RowTable::operator()(std::span<const int32_t> rows) const {
  return ops::gather_rows(bring_ ? bring_().tensor.reshape(table_.shape()) : table_, rows,
                          DType::f32);
}

std::vector<bool> ones_of(const Tensor& mask) {
  std::vector<bool> ones;
  if (tensor::is_float(mask.dtype()))
    for (const float value : mask.to_floats()) ones.push_back(value != 0);
  else
    for (const int64_t value : mask.to_ints()) ones.push_back(value != 0);
  return ones;
}

PackedText pack_text(const Tensor& tokens, const Tensor& mask) {
  PackedText packed{tokens, {}};
  const int64_t batch = mask.defined() ? mask.size(0) : 0;
  if (!mask.defined() || mask.is_meta()) return packed;
  const int64_t length = mask.elements() / std::max<int64_t>(batch, 1);
  require(tokens.size(0) == batch * length, ErrorCode::usage,
          "a text mask {} does not fit {} text tokens", mask.shape().str(), tokens.size(0));
  std::vector<int32_t> token_rows;
  int64_t at = 0;
  const std::vector<bool> ones = ones_of(mask);
  for (int64_t r = 0; r < batch; ++r) {
    const int64_t begin = at;
    for (int64_t i = r * length; i < (r + 1) * length; ++i)
      if (ones[static_cast<size_t>(i)]) token_rows.push_back(static_cast<int32_t>(i)), ++at;
    packed.spans.push_back({begin, at});
  }
  packed.tokens = ops::gather_rows(tokens, token_rows, tokens.dtype());
  return packed;
}

std::vector<ops::AttentionSpan> text_spans(const nn::Segments& body,
                                           const std::vector<nn::Range>& text) {
  std::vector<ops::AttentionSpan> spans;
  int64_t at = 0;
  for (const nn::Segment& s : body) {
    const nn::Range& keys = text.at(static_cast<size_t>(s.sequence));
    spans.push_back({at, at + s.ids.size(), keys.begin, keys.end});
    at += s.ids.size();
  }
  return spans;
}

const std::vector<Tensor>& DitStep::of(int block,
                                       std::initializer_list<const nn::Linear*> layers) const {
  return modulation.of(block, [&] {
    std::vector<Tensor> outputs;
    for (const nn::Linear* layer : layers) outputs.push_back((*layer)(condition));
    return outputs;
  });
}

nn::Joint DoubleBlock::operator()(int site, const nn::Joint& modulation,
                                  const DitPlacement& placement, const nn::Joint& streams,
                                  const nn::Seams& seams) const {
  const Tensor &m = modulation.body, &n = modulation.prefix;
  const auto &rows = placement.sequences, &text_rows = placement.text_sequences;
  Tensor c = streams.prefix, x = streams.body;
  const int64_t length = c.size(0), all = length + x.size(0), d = x.size(1);
  const auto normed = [&](int64_t shift) -> nn::Joint {
    return {norm(c, part(n, shift, d), part(n, shift + 1, d), text_rows),
            norm(x, part(m, shift, d), part(m, shift + 1, d), rows),
            {}};
  };
  nn::Qkv heads;
  if (seams.attention.needs_heads(site)) {
    heads = image.heads.room(x, all);
    Projections::both(text.heads, image.heads, normed(0), placement.angles, heads,
                      placement.text_angles);
  }
  ops::MatmulGroup group;
  const nn::Joint attention = apart(seams.attention.attend(site, placement.view, heads), length);
  x = image.out(attention.body, gated(m, 2, rows, x, &group), seams.reduce);
  c = text.out(attention.prefix, gated(n, 2, text_rows, c, &group), seams.reduce);
  group.run();
  return Mlp::both(text.mlp, image.mlp, normed(3), gated(n, 5, text_rows, c), gated(m, 5, rows, x),
                   seams.reduce);
}

Tensor head_norm(const nn::StepContext& step, const nn::Placement& placement, const Tensor& body,
                 int shift, int scale) {
  const Tensor& m = dit(step).final_modulation;
  const int64_t d = body.size(1);
  return TokenNorm()(body, part(m, shift, d), part(m, scale, d), dit(placement).sequences);
}

nn::Geometry dit_geometry(int64_t blocks, int64_t heads, int64_t head_dim, bool joint) {
  nn::Geometry g;
  g.blocks = static_cast<int>(blocks);
  g.hidden = heads * head_dim;
  for (int b = 0; b < g.blocks; ++b) {
    g.attention.push_back({.block = b,
                           .heads = static_cast<int>(heads),
                           .kv_heads = static_cast<int>(heads),
                           .head_dim = static_cast<int>(head_dim),
                           .joint = joint,
                           .prefix_queries = joint});
    g.skip_from.push_back(-1);
  }
  return g;
}

Tensor optional_input(const nn::Conditioning& conditioning, const char* name) {
  const auto it = conditioning.tensors.find(name);
  return it == conditioning.tensors.end() ? Tensor() : it->second;
}

Tensor text_input(const nn::Conditioning& conditioning, const char* name, int64_t batch,
                  int64_t channels, int64_t* length) {
  const Tensor x = optional_input(conditioning, name);
  require(x.defined(), ErrorCode::usage, "the transformer needs '{}' [{}, tokens, {}]", name, batch,
          channels);
  require(
      x.rank() == 3 && x.size(0) == batch && x.size(2) == channels && tensor::is_float(x.dtype()),
      ErrorCode::usage, "'{}' is {} {}; expected floats [{}, tokens, {}]", name,
      tensor::name_of(x.dtype()), x.shape().str(), batch, channels);
  *length = x.size(1);
  return ops::cast(x.contiguous(), DType::f32).reshape({batch * x.size(1), channels});
}

Tensor batch_input(const nn::Conditioning& conditioning, const char* name, int64_t batch,
                   int64_t channels) {
  const Tensor x = optional_input(conditioning, name);
  require(x.defined(), ErrorCode::usage, "the transformer needs '{}' [{}, {}]", name, batch,
          channels);
  require(x.elements() == batch * channels && tensor::is_float(x.dtype()), ErrorCode::usage,
          "'{}' is {} {}; expected floats [{}, {}]", name, tensor::name_of(x.dtype()),
          x.shape().str(), batch, channels);
  return ops::cast(x.contiguous(), DType::f32).reshape({batch, channels});
}

PatchHead::PatchHead(const nn::Weights& weights, int64_t patch, int64_t channels, int64_t dim,
                     bool turn, DType dtype) {
  const Tensor rows = weights.get("proj_out.weight", {patch * channels, dim});
  weight_ = ops::pack_weight(turn ? nn::channel_slowest(rows, patch, channels) : rows, dtype);
  const Tensor bias = weights.vector("proj_out.bias", patch * channels);
  bias_ = turn ? nn::channel_slowest(bias, patch, channels) : bias;
}

Tensor PatchHead::operator()(const Tensor& x) const {
  return ops::matmul(x, weight_, {.bias = bias_, .out = DType::f32, .out_as_input = false});
}

PatchEmbed::PatchEmbed(const nn::Weights& weights, const std::string& name, int64_t dim,
                       int64_t channels, int64_t patch, bool bias, DType dtype) {
  const Tensor filter = weights.get(name + ".weight", {dim, channels, patch, patch});
  weight_ = ops::pack_weight(filter.reshape({dim, channels * patch * patch}), dtype);
  if (bias) bias_ = weights.vector(name + ".bias", dim);
}

Tensor PatchEmbed::operator()(const Tensor& latent, const Tensor& positions, DType out) const {
  return ops::matmul(latent, weight_,
                     {.bias = bias_, .residual = positions, .out = out, .out_as_input = false});
}

}  // namespace tessera::models
