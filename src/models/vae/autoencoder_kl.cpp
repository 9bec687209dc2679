#include "models/vae/autoencoder_kl.h"

#include "base/fail.h"
#include "ops/elementwise.h"

namespace tessera::models {
namespace {

using base::Json;
using nn::Plane;
using tensor::DType;
using tensor::Tensor;

const ops::Conv2dOptions kSame{.pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1};

std::string shown(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 60);
}

int64_t size_in(const Json& value, const std::string& where, const char* key) {
  const bool fits = value.is_number_unsigned() && value.get<uint64_t>() >= 1 &&
                    value.get<uint64_t>() <= 65536;
  require(fits, ErrorCode::model, "{}: '{}' is {}; expected a whole number from 1 to 65536", where, key,
          shown(value));
  return value.get<int64_t>();
}

void read_size(const Json& config, const std::string& where, const char* key, int64_t& into) {
  if (config.contains(key)) into = size_in(config[key], where, key);
}

void read_number(const Json& config, const std::string& where, const char* key, double& into) {
  if (!config.contains(key) || config[key].is_null()) return;
  require(config[key].is_number(), ErrorCode::model, "{}: '{}' is {}; expected a number", where, key,
          shown(config[key]));
  into = config[key].get<double>();
}

void read_flag(const Json& config, const std::string& where, const char* key, bool& into) {
  if (!config.contains(key)) return;
  require(config[key].is_boolean(), ErrorCode::model, "{}: '{}' is {}; expected true or false", where,
          key, shown(config[key]));
  into = config[key].get<bool>();
}

// [rows, channels, h, w] f32 <-> [rows, h, w, channels] of any float dtype.
Tensor channels_last(const Tensor& x, DType dtype) {
  Tensor y = Tensor::empty({x.size(0), x.size(2), x.size(3), x.size(1)}, DType::f32, x.device());
  if (x.is_meta()) return Tensor::empty(y.shape(), dtype, x.device());
  const Tensor dense = x.contiguous();
  const int64_t pixels = x.size(2) * x.size(3), channels = x.size(1);
  for (int64_t r = 0; r < x.size(0); ++r)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t p = 0; p < pixels; ++p)
        y.data<float>()[(r * pixels + p) * channels + c] =
            dense.data<float>()[(r * channels + c) * pixels + p];
  return ops::cast(y, dtype);
}

Tensor channels_first(const Tensor& any) {
  const Tensor x = ops::cast(any, DType::f32);
  Tensor y = Tensor::empty({x.size(0), x.size(3), x.size(1), x.size(2)}, DType::f32, x.device());
  if (x.is_meta()) return y;
  const int64_t pixels = x.size(1) * x.size(2), channels = x.size(3);
  for (int64_t r = 0; r < x.size(0); ++r)
    for (int64_t p = 0; p < pixels; ++p)
      for (int64_t c = 0; c < channels; ++c)
        y.data<float>()[(r * channels + c) * pixels + p] =
            x.data<float>()[(r * pixels + p) * channels + c];
  return y;
}

}  // namespace

AutoencoderKLConfig parse_autoencoder_kl_config(const Json& config, const std::string& where) {
  AutoencoderKLConfig c;
  read_size(config, where, "in_channels", c.in_channels);
  read_size(config, where, "out_channels", c.out_channels);
  read_size(config, where, "latent_channels", c.latent_channels);
  read_size(config, where, "layers_per_block", c.layers_per_block);
  read_size(config, where, "norm_num_groups", c.norm_num_groups);
  read_number(config, where, "scaling_factor", c.scaling_factor);
  read_number(config, where, "shift_factor", c.shift_factor);
  read_flag(config, where, "use_quant_conv", c.use_quant_conv);
  read_flag(config, where, "use_post_quant_conv", c.use_post_quant_conv);
  read_flag(config, where, "mid_block_add_attention", c.mid_block_add_attention);
  if (config.contains("block_out_channels")) {
    const Json& widths = config["block_out_channels"];
    require(widths.is_array() && !widths.empty() && widths.size() <= 8, ErrorCode::model,
            "{}: 'block_out_channels' is {}; expected a list of 1 to 8 widths", where, shown(widths));
    c.block_out_channels.clear();
    for (const Json& width : widths) {
      c.block_out_channels.push_back(size_in(width, where, "block_out_channels"));
      require(c.block_out_channels.back() % c.norm_num_groups == 0, ErrorCode::model,
              "{}: 'block_out_channels' holds {}, no multiple of norm_num_groups {}", where,
              c.block_out_channels.back(), c.norm_num_groups);
    }
  }
  require(c.scaling_factor > 0, ErrorCode::model, "{}: 'scaling_factor' is {}; expected more than 0",
          where, c.scaling_factor);
  return c;
}

nn::GroupNorm AutoencoderKL::load_norm(const nn::Weights& weights, const std::string& name,
                                       int64_t channels) const {
  return {static_cast<int>(config_.norm_num_groups), weights.vector(name + ".weight", channels),
          weights.vector(name + ".bias", channels)};
}

ops::ConvWeight AutoencoderKL::load_conv(const nn::Weights& weights, const std::string& name,
                                         int64_t out, int64_t in, int64_t size) const {
  return weights.conv(name + ".weight", name + ".bias", {out, in, size, size}, dtype_);
}

AutoencoderKL::Resnet AutoencoderKL::load_resnet(const nn::Weights& weights, const std::string& name,
                                                 int64_t in, int64_t out) const {
  Resnet r{load_norm(weights, name + ".norm1", in), load_norm(weights, name + ".norm2", out),
           load_conv(weights, name + ".conv1", out, in, 3), load_conv(weights, name + ".conv2", out, out, 3),
           {}};
  if (in != out) r.shortcut = load_conv(weights, name + ".conv_shortcut", out, in, 1);
  return r;
}

AutoencoderKL::Attention AutoencoderKL::load_attention(const nn::Weights& weights,
                                                       const std::string& name, int64_t channels) const {
  // Folders written before diffusers 0.17 have the old names.
  const bool old = weights.has(name + ".query.weight");
  auto linear = [&](const char* now, const char* then) {
    return nn::Linear(weights, name + (old ? then : now), channels, channels, dtype_);
  };
  return {load_norm(weights, name + ".group_norm", channels), linear(".to_q", ".query"),
          linear(".to_k", ".key"), linear(".to_v", ".value"), linear(".to_out.0", ".proj_attn")};
}

AutoencoderKL::AutoencoderKL(const AutoencoderKLConfig& config, const nn::Weights& weights,
                             DType dtype)
    : config_(config), dtype_(dtype) {
  const int64_t latent = config.latent_channels, deep = config.block_out_channels.back();
  if (config.use_post_quant_conv) post_quant_ = load_conv(weights, "post_quant_conv", latent, latent, 1);
  conv_in_ = load_conv(weights, "decoder.conv_in", deep, latent, 3);
  for (int i = 0; i < 2; ++i)
    middle_.push_back(load_resnet(weights, fmt::format("decoder.mid_block.resnets.{}", i), deep, deep));
  if (config.mid_block_add_attention)
    middle_attention_.push_back(load_attention(weights, "decoder.mid_block.attentions.0", deep));
  int64_t in = deep;
  const size_t count = config.block_out_channels.size();
  for (size_t b = 0; b < count; ++b) {
    const int64_t out = config.block_out_channels[count - 1 - b];
    const std::string name = fmt::format("decoder.up_blocks.{}.", b);
    Level level;
    for (int64_t i = 0; i <= config.layers_per_block; ++i)
      level.resnets.push_back(
          load_resnet(weights, fmt::format("{}resnets.{}", name, i), i == 0 ? in : out, out));
    if (b + 1 < count) level.upsampler = load_conv(weights, name + "upsamplers.0.conv", out, out, 3);
    levels_.push_back(std::move(level));
    in = out;
  }
  norm_out_ = load_norm(weights, "decoder.conv_norm_out", in);
  conv_out_ = load_conv(weights, "decoder.conv_out", config.out_channels, in, 3);
}

Plane AutoencoderKL::run(const Resnet& r, const Plane& x, nn::Spatial& spatial) const {
  Plane h = spatial.conv(r.conv1, spatial.group_norm(r.norm1, x, true), kSame);
  h = spatial.conv(r.conv2, spatial.group_norm(r.norm2, h, true), kSame);
  h.data = ops::add(r.shortcut ? spatial.conv(r.shortcut, x, {}).data : x.data, h.data);
  return h;
}

Plane AutoencoderKL::run(const Attention& a, const Plane& x, nn::Spatial& spatial) const {
  const Plane normed = spatial.group_norm(a.norm, x, false);
  const int64_t channels = x.data.size(3), pixels = x.data.elements() / channels;
  const Tensor tokens = normed.data.reshape({pixels, channels});
  const Tensor seen = spatial.attend(x, a.q(tokens), a.k(tokens), a.v(tokens));
  const Tensor y = a.out(seen, {.residual = x.data.reshape({pixels, channels})});
  return {y.reshape(x.data.shape()), x.height, x.begin};
}

Tensor AutoencoderKL::unscale(const Tensor& latents) const {
  Tensor y = Tensor::empty(latents.shape(), DType::f32, latents.device());
  if (latents.is_meta()) return y;
  const std::vector<float> values = latents.to_floats();
  for (size_t i = 0; i < values.size(); ++i)
    y.data<float>()[i] =
        static_cast<float>(double(values[i]) / config_.scaling_factor + config_.shift_factor);
  return y;
}

Tensor AutoencoderKL::decode(const Tensor& latents, nn::Spatial& spatial, const Trace& trace) const {
  require(latents.rank() == 4 && latents.size(1) == config_.latent_channels &&
              latents.dtype() == DType::f32,
          ErrorCode::usage, "a VAE of {} latent channels was given {} {}; expected f32 [rows, {}, h, w]",
          config_.latent_channels, tensor::name_of(latents.dtype()), latents.shape().str(),
          config_.latent_channels);
  auto show = [&](const std::string& name, const Plane& x) {
    if (trace) trace(name, channels_first(x.data));
  };
  Plane x{channels_last(latents, dtype_), latents.size(2), 0};
  if (post_quant_) x = spatial.conv(post_quant_, x, {});
  x = spatial.conv(conv_in_, x, kSame);
  show("conv_in", x);
  x = run(middle_[0], x, spatial);
  for (const Attention& attention : middle_attention_) x = run(attention, x, spatial);
  x = run(middle_[1], x, spatial);
  show("mid_block", x);
  for (size_t b = 0; b < levels_.size(); ++b) {
    for (const Resnet& resnet : levels_[b].resnets) x = run(resnet, x, spatial);
    if (levels_[b].upsampler) {
      x.data = ops::upsample_nearest_2x(x.data);
      x.height *= 2;
      x = spatial.conv(levels_[b].upsampler, x, kSame);
    }
    show(fmt::format("up_blocks.{}", b), x);
  }
  x = spatial.conv(conv_out_, spatial.group_norm(norm_out_, x, true), kSame);
  return channels_first(x.data);
}

}  // namespace tessera::models
