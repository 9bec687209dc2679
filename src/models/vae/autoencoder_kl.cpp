#include "models/vae/autoencoder_kl.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/config_reader.h"
#include "base/fail.h"

namespace tessera::models {
namespace {

using base::Json;
using nn::Plane;
using tensor::DType;
using tensor::Tensor;

constexpr int64_t kMost = 65536;  // maximum channels, or pixels of a trained side

std::vector<int64_t> read_widths(const base::ConfigReader& reader, std::vector<int64_t> missing,
                                 int64_t groups, const char* key = "block_out_channels") {
  const auto widths = reader.sizes(key, std::move(missing));
  require(!widths.empty() && widths.size() <= 8, ErrorCode::model,
          "{}: '{}' is [{}]; expected a list of 1 to 8 widths", reader.where(), key,
          fmt::join(widths, ", "));
  for (const int64_t width : widths)
    require(width >= 1 && width <= kMost && width % groups == 0, ErrorCode::model,
            "{}: '{}' holds {}, no multiple of norm_num_groups {} up to {}", reader.where(), key,
            width, groups, kMost);
  return widths;
}

}  // namespace

AutoencoderKLConfig parse_autoencoder_kl_config(const Json& config, const std::string& where) {
  const base::ConfigReader reader(config, where);
  AutoencoderKLConfig c;
  c.in_channels = reader.integer("in_channels", c.in_channels, 1, kMost);
  c.out_channels = reader.integer("out_channels", c.out_channels, 1, kMost);
  c.latent_channels = reader.integer("latent_channels", c.latent_channels, 1, kMost);
  c.layers_per_block = reader.integer("layers_per_block", c.layers_per_block, 1, 100);
  c.norm_num_groups = reader.integer("norm_num_groups", c.norm_num_groups, 1, kMost);
  const auto side = config.find("sample_size");
  if (side != config.end() && side->is_array() && !side->empty()) {
    const Json first{{"sample_size", side->front()}};
    c.sample_size = base::ConfigReader(first, where).integer("sample_size", 1, 1, kMost);
  } else {
    c.sample_size = reader.integer("sample_size", c.sample_size, 1, kMost);
  }
  c.scaling_factor = reader.positive("scaling_factor", c.scaling_factor);
  c.shift_factor = reader.number("shift_factor", c.shift_factor, -1000, 1000);
  c.use_quant_conv = reader.flag("use_quant_conv", c.use_quant_conv);
  c.use_post_quant_conv = reader.flag("use_post_quant_conv", c.use_post_quant_conv);
  c.mid_block_add_attention = reader.flag("mid_block_add_attention", c.mid_block_add_attention);
  c.block_out_channels = read_widths(reader, c.block_out_channels, c.norm_num_groups);
  reader.all("up_block_types", "UpDecoderBlock2D");
  reader.all("down_block_types", "DownEncoderBlock2D");
  reader.choice("act_fn", "silu", {"silu"});
  return c;
}

AutoencoderKLConfig parse_flux2_vae_config(const Json& config, const std::string& where) {
  const base::ConfigReader reader(config, where);
  AutoencoderKLConfig c = parse_autoencoder_kl_config(config, where);
  c.batch_norm = true;
  c.batch_norm_eps = reader.fraction("batch_norm_eps", c.batch_norm_eps);
  require(reader.sizes("patch_size", {2, 2}) == std::vector<int64_t>{2, 2}, ErrorCode::model,
          "{}: 'patch_size': expected [2, 2]", where);
  if (!reader.has("decoder_block_out_channels")) return c;
  c.decoder_block_out_channels =
      read_widths(reader, {}, c.norm_num_groups, "decoder_block_out_channels");
  require(c.decoder_block_out_channels.size() == c.block_out_channels.size(), ErrorCode::model,
          "{}: 'decoder_block_out_channels' has {} widths, 'block_out_channels' {}", where,
          c.decoder_block_out_channels.size(), c.block_out_channels.size());
  return c;
}

LatentStatistics LatentStatistics::load(const AutoencoderKLConfig& config,
                                        const nn::Weights& weights) {
  if (!config.batch_norm) return {};
  const int64_t channels = 4 * config.latent_channels;
  const Tensor mean = weights.vector("bn.running_mean", channels),
               variance = weights.vector("bn.running_var", channels);
  if (mean.is_meta()) return {};
  LatentStatistics statistics{mean.to_floats(), variance.to_floats()};
  for (float& value : statistics.deviation)
    value = static_cast<float>(std::sqrt(double(value) + config.batch_norm_eps));
  return statistics;
}

size_t LatentStatistics::place(int64_t at, const tensor::Shape& latents) {
  const int64_t channels = latents[1], height = latents[2], width = latents[3];
  return static_cast<size_t>(at / (height * width) % channels * 4 + at / width % height % 2 * 2 +
                             at % width % 2);
}

Tiling tiling_of(const AutoencoderKLConfig& config, int64_t pixels) {
  const int64_t factor = int64_t{1} << (config.block_out_channels.size() - 1);
  const TileSide side = tile_side(pixels > 0 ? pixels : config.sample_size, factor, 0.25);
  return {side, side};
}

AutoencoderKL::AutoencoderKL(const AutoencoderKLConfig& config, const nn::Weights& weights,
                             DType dtype)
    : config_(config), dtype_(dtype) {
  const VaeLoader load{weights, dtype, static_cast<int>(config.norm_num_groups)};
  const auto& widths = config.decoder_block_out_channels.empty()
                           ? config.block_out_channels
                           : config.decoder_block_out_channels;
  const int64_t latent = config.latent_channels, deep = widths.back();
  if (config.use_post_quant_conv) post_quant_ = load.conv("post_quant_conv", latent, latent, 1);
  conv_in_ = load.conv("decoder.conv_in", deep, latent, 3);
  for (int i = 0; i < 2; ++i)
    middle_.emplace_back(load, fmt::format("decoder.mid_block.resnets.{}", i), deep, deep);
  if (config.mid_block_add_attention)
    middle_attention_.emplace_back(load, "decoder.mid_block.attentions.0", deep);
  int64_t in = deep;
  const size_t count = widths.size();
  for (size_t b = 0; b < count; ++b) {
    const int64_t out = widths[count - 1 - b];
    const std::string name = fmt::format("decoder.up_blocks.{}.", b);
    Level level;
    for (int64_t i = 0; i <= config.layers_per_block; ++i)
      level.resnets.emplace_back(load, fmt::format("{}resnets.{}", name, i), i == 0 ? in : out,
                                 out);
    if (b + 1 < count) level.upsampler = load.conv(name + "upsamplers.0.conv", out, out, 3);
    levels_.push_back(std::move(level));
    in = out;
  }
  norm_out_ = load.norm("decoder.conv_norm_out", in);
  conv_out_ = load.conv("decoder.conv_out", config.out_channels, in, 3);
  statistics_ = LatentStatistics::load(config, weights);
}

Tensor AutoencoderKL::unscale(const Tensor& latents) const {
  if (latents.is_meta()) return Tensor::empty(latents.shape(), DType::f32, latents.device());
  std::vector<float> values = latents.to_floats();
  for (size_t i = 0; i < values.size(); ++i) {
    float& value = values[i];
    if (!config_.batch_norm) {
      value = static_cast<float>(double(value) / config_.scaling_factor + config_.shift_factor);
      continue;
    }
    const size_t place = LatentStatistics::place(static_cast<int64_t>(i), latents.shape());
    value = value * statistics_.deviation[place] + statistics_.mean[place];
  }
  return Tensor::from(std::span<const float>(values), latents.shape()).to(latents.device());
}

Tensor AutoencoderKL::decode(const Tensor& latents, nn::Spatial& spatial,
                             const VaeWatch& watch) const {
  require(latents.rank() == 4 && latents.size(1) == config_.latent_channels &&
              latents.dtype() == DType::f32,
          ErrorCode::usage,
          "a VAE of {} latent channels was given {} {}; expected f32 [batch, {}, h, w]",
          config_.latent_channels, tensor::name_of(latents.dtype()), latents.shape().str(),
          config_.latent_channels);
  auto show = [&](const std::string& name, const Plane& x) {
    if (watch.trace) watch.trace(name, channels_first(spatial.join(x)));
  };
  Plane x = lines_of(latents, dtype_, spatial);
  if (post_quant_) x = spatial.conv(post_quant_, x, {});
  x = spatial.conv(conv_in_, x, same_size());
  show("conv_in", x);
  x = middle_[0](std::move(x), spatial);
  for (const VaeAttention& attention : middle_attention_) x = attention(x, spatial);
  x = middle_[1](std::move(x), spatial);
  show("mid_block", x);
  ops::Conv2dOptions upsampling = same_size();
  upsampling.upsample = true;
  for (size_t b = 0; b < levels_.size(); ++b) {
    for (const VaeResnet& resnet : levels_[b].resnets) x = resnet(std::move(x), spatial);
    if (levels_[b].upsampler) x = spatial.conv(levels_[b].upsampler, x, upsampling);
    show(fmt::format("up_block.{}", b), x);
  }
  ops::Conv2dOptions last = same_size();
  last.scale_shift = spatial.scale_shift(norm_out_, x);
  last.silu = true;
  last.out = DType::f32;
  last.out_as_input = false;
  x = spatial.conv(conv_out_, x, last);
  return channels_first(spatial.join(x));
}

AutoencoderKLEncoder::AutoencoderKLEncoder(const AutoencoderKLConfig& config,
                                           const nn::Weights& weights, DType dtype)
    : config_(config), dtype_(dtype) {
  const VaeLoader load{weights, dtype, static_cast<int>(config.norm_num_groups)};
  const int64_t moments = 2 * config.latent_channels, deep = config.block_out_channels.back();
  int64_t in = config.block_out_channels.front();
  conv_in_ = load.conv("encoder.conv_in", in, config.in_channels, 3);
  for (size_t b = 0; b < config.block_out_channels.size(); ++b) {
    const int64_t out = config.block_out_channels[b];
    const std::string name = fmt::format("encoder.down_blocks.{}.", b);
    Level level;
    for (int64_t i = 0; i < config.layers_per_block; ++i)
      level.resnets.emplace_back(load, fmt::format("{}resnets.{}", name, i), i == 0 ? in : out,
                                 out);
    if (b + 1 < config.block_out_channels.size())
      level.downsampler = load.conv(name + "downsamplers.0.conv", out, out, 3);
    levels_.push_back(std::move(level));
    in = out;
  }
  for (int i = 0; i < 2; ++i)
    middle_.emplace_back(load, fmt::format("encoder.mid_block.resnets.{}", i), deep, deep);
  if (config.mid_block_add_attention)
    middle_attention_.emplace_back(load, "encoder.mid_block.attentions.0", deep);
  norm_out_ = load.norm("encoder.conv_norm_out", deep);
  conv_out_ = load.conv("encoder.conv_out", moments, deep, 3);
  if (config.use_quant_conv) quant_ = load.conv("quant_conv", moments, moments, 1);
  statistics_ = LatentStatistics::load(config, weights);
}

VaeMoments AutoencoderKLEncoder::encode(const Tensor& images, nn::Spatial& spatial,
                                        const VaeWatch& watch) const {
  require(
      images.rank() == 4 && images.size(1) == config_.in_channels && images.dtype() == DType::f32,
      ErrorCode::usage, "a VAE was given {} {} to encode; expected f32 [batch, {}, height, width]",
      tensor::name_of(images.dtype()), images.shape().str(), config_.in_channels);
  auto show = [&](const std::string& name, const Plane& x) {
    if (watch.trace) watch.trace(name, channels_first(spatial.join(x)));
  };
  Plane x = lines_of(images, dtype_, spatial);
  x = spatial.conv(conv_in_, x, same_size());
  show("conv_in", x);
  // diffusers pads only below and to the right.
  const ops::Conv2dOptions downsampling{.stride = 2, .pad_bottom = 1, .pad_right = 1};
  for (size_t b = 0; b < levels_.size(); ++b) {
    for (const VaeResnet& resnet : levels_[b].resnets) x = resnet(std::move(x), spatial);
    if (levels_[b].downsampler) x = spatial.conv(levels_[b].downsampler, x, downsampling);
    show(fmt::format("down_block.{}", b), x);
  }
  x = middle_[0](std::move(x), spatial);
  for (const VaeAttention& attention : middle_attention_) x = attention(x, spatial);
  x = middle_[1](std::move(x), spatial);
  show("mid_block", x);
  ops::Conv2dOptions last = same_size();
  last.scale_shift = spatial.scale_shift(norm_out_, x);
  last.silu = true;
  x = spatial.conv(conv_out_, x, last);
  if (quant_) x = spatial.conv(quant_, x, {});
  const Tensor moments = channels_first(spatial.join(x));
  const int64_t channels = config_.latent_channels;
  VaeMoments result{moments.slice(1, 0, channels).contiguous(),
                    moments.slice(1, channels, 2 * channels).contiguous()};
  result.logvar = clamped_logvar(result.logvar);
  return result;
}

VaeMoments AutoencoderKLEncoder::scale(const VaeMoments& moments) const {
  if (!config_.batch_norm)
    return scaled_moments(moments, config_.shift_factor, config_.scaling_factor);
  if (moments.mean.is_meta()) return moments;
  const tensor::Shape& shape = moments.mean.shape();
  std::vector<float> mean = moments.mean.to_floats(), logvar = moments.logvar.to_floats();
  for (size_t i = 0; i < mean.size(); ++i) {
    const size_t place = LatentStatistics::place(static_cast<int64_t>(i), shape);
    const float deviation = statistics_.deviation[place];
    mean[i] = (mean[i] - statistics_.mean[place]) / deviation;
    logvar[i] -= 2 * std::log(deviation);
  }
  const auto to_tensor = [&](const std::vector<float>& values) {
    return Tensor::from(std::span<const float>(values), shape).to(moments.mean.device());
  };
  return {to_tensor(mean), to_tensor(logvar)};
}

}  // namespace tessera::models
