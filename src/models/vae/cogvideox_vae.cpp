#include "models/vae/cogvideox_vae.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/config_reader.h"
#include "base/fail.h"
#include "models/vae/vae_blocks.h"
#include "nn/latent_form.h"
#include "nn/segments.h"
#include "ops/elementwise.h"

namespace tessera::models {
namespace {

using tensor::DType;
using tensor::Tensor;

// Number of levels that change the number of frames: one for each factor of two.
int64_t temporal_levels(const CogVideoXVaeConfig& c) {
  return static_cast<int64_t>(std::lround(std::log2(double(c.temporal_compression_ratio))));
}

// Splits [0, frames) into pieces of `size`; the first also takes the remainder.
std::vector<nn::Range> pieces_of(int64_t frames, int64_t size) {
  const int64_t count = std::max<int64_t>(frames / size, 1), rest = frames % size;
  std::vector<nn::Range> pieces;
  for (int64_t i = 0; i < count; ++i)
    pieces.push_back({size * i + (i == 0 ? 0 : rest), std::min(frames, size * (i + 1) + rest)});
  return pieces;
}

// Video `at` of [batch, channels, frames, h, w] -> [frames, channels, h, w].
Tensor frames_first(const Tensor& x, int64_t at) {
  const Tensor frame = nn::swap_frames(x.slice(0, at, at + 1));
  return frame.reshape({x.size(2), x.size(1), x.size(3), x.size(4)});
}

// [frames, h, w, channels] -> f32 [1, channels, frames, h, w].
Tensor channels_before_frames(const Tensor& x) {
  const Tensor first = channels_first(x);
  return nn::swap_frames(
      first.reshape({1, first.size(0), first.size(1), first.size(2), first.size(3)}));
}

// Concatenates pieces of a video along the frames, and videos along the batch.
Tensor joined(const std::vector<Tensor>& pieces) {
  std::vector<Tensor> frames;
  for (const Tensor& p : pieces) {
    const Tensor swapped = nn::swap_frames(p);  // [1, frames, channels, h, w]
    frames.push_back(swapped.reshape({p.size(2), p.size(1), p.size(3), p.size(4)}));
  }
  const Tensor video = ops::concat_rows(frames);
  return nn::swap_frames(
      video.reshape({1, video.size(0), video.size(1), video.size(2), video.size(3)}));
}

void check_video(const char* input, const Tensor& x, int64_t channels) {
  require(x.rank() == 5 && x.size(1) == channels && x.dtype() == DType::f32 && x.size(2) >= 1,
          ErrorCode::usage,
          "a video VAE was given {} {} to {}; expected f32 [batch, {}, frames, h, w]",
          tensor::name_of(x.dtype()), x.shape().str(), input, channels);
}

}  // namespace

CogVideoXVaeConfig parse_cogvideox_vae_config(const base::Json& config, const std::string& where) {
  const base::ConfigReader reader(config, where);
  CogVideoXVaeConfig c;
  reader.choice("act_fn", "silu", {"silu"});
  reader.refuse("use_quant_conv", "a filter after the encoder");
  reader.refuse("use_post_quant_conv", "a filter before the decoder");
  c.in_channels = reader.size("in_channels", c.in_channels);
  c.out_channels = reader.size("out_channels", c.out_channels);
  c.latent_channels = reader.size("latent_channels", c.latent_channels);
  c.layers_per_block = reader.integer("layers_per_block", c.layers_per_block, 1, 100);
  c.norm_num_groups = reader.size("norm_num_groups", c.norm_num_groups);
  c.temporal_compression_ratio = reader.integer("temporal_compression_ratio", 4, 1, 256);
  c.block_out_channels = reader.sizes("block_out_channels", c.block_out_channels);
  c.sample_height = reader.size("sample_height", c.sample_height);
  c.sample_width = reader.size("sample_width", c.sample_width);
  c.scaling_factor = reader.positive("scaling_factor", c.scaling_factor);
  require(!c.block_out_channels.empty() && c.block_out_channels.size() <= 8, ErrorCode::model,
          "{}: 'block_out_channels' holds {} widths; expected 1 to 8", where,
          c.block_out_channels.size());
  for (int64_t width : c.block_out_channels)
    require(width > 0 && width % c.norm_num_groups == 0, ErrorCode::model,
            "{}: 'block_out_channels' holds {}, no multiple of norm_num_groups {}", where, width,
            c.norm_num_groups);
  const int64_t levels = temporal_levels(c);
  require(int64_t{1} << levels == c.temporal_compression_ratio &&
              levels < static_cast<int64_t>(c.block_out_channels.size()),
          ErrorCode::model, "{}: 'temporal_compression_ratio' {} does not fit {} levels", where,
          c.temporal_compression_ratio, c.block_out_channels.size());
  return c;
}

Tiling tiling_of(const CogVideoXVaeConfig& config, int64_t pixels) {
  const int64_t factor = int64_t{1} << (config.block_out_channels.size() - 1);
  const auto side = [&](int64_t trained, double overlap) {
    return tile_side(pixels > 0 ? pixels : trained / 2, factor, overlap);
  };
  return {side(config.sample_height, 1.0 / 6), side(config.sample_width, 1.0 / 5)};
}

CogVideoXVae::CogVideoXVae(const CogVideoXVaeConfig& config, const nn::Weights& weights,
                           DType dtype)
    : config_(config), dtype_(dtype) {
  const int groups = static_cast<int>(config.norm_num_groups);
  const int64_t latent = config.latent_channels, deep = config.block_out_channels.back();
  conv_in_ = CausalConv(weights, "decoder.conv_in.conv", deep, latent, 3, dtype);
  for (int i = 0; i < 2; ++i)
    middle_.emplace_back(weights, fmt::format("decoder.mid_block.resnets.{}", i), groups, deep,
                         deep, latent, dtype);
  int64_t in = deep;
  const size_t count = config.block_out_channels.size();
  for (size_t b = 0; b < count; ++b) {
    const int64_t out = config.block_out_channels[count - 1 - b];
    const std::string name = fmt::format("decoder.up_blocks.{}.", b);
    Level level;
    for (int64_t i = 0; i <= config.layers_per_block; ++i)
      level.resnets.emplace_back(weights, fmt::format("{}resnets.{}", name, i), groups,
                                 i == 0 ? in : out, out, latent, dtype);
    if (b + 1 < count)
      level.upsampler = weights.conv(name + "upsamplers.0.conv.weight",
                                     name + "upsamplers.0.conv.bias", {out, out, 3, 3}, dtype);
    level.more_frames = static_cast<int64_t>(b) < temporal_levels(config);
    levels_.push_back(std::move(level));
    in = out;
  }
  norm_out_ = FrameNorm(weights, "decoder.norm_out", groups, in, latent, dtype);
  conv_out_ = CausalConv(weights, "decoder.conv_out.conv", config.out_channels, in, 3, dtype);
}

Tensor CogVideoXVae::unscale(const Tensor& latents) const {
  return ops::blend(latents, static_cast<float>(1 / config_.scaling_factor), latents, 0);
}

Frames CogVideoXVae::decode_piece(const Frames& latent, FrameScene& scene) const {
  Frames x = conv_in_(latent, scene, dtype_);
  for (const FrameResnet& resnet : middle_) x = resnet(x, latent, scene);
  ops::Conv2dOptions upsampling = same_size();
  upsampling.upsample = true;
  for (const Level& level : levels_) {
    for (const FrameResnet& resnet : level.resnets) x = resnet(x, latent, scene);
    if (!level.upsampler) continue;
    if (level.more_frames) x = doubled_frames(x);
    x = scene.spatial.conv(level.upsampler, x, upsampling);
  }
  return conv_out_(norm_out_(x, latent, scene), scene, DType::f32);
}

Tensor CogVideoXVae::decode(const Tensor& latents, nn::Spatial& spatial,
                            const VaeWatch& watch) const {
  check_video("decode", latents, config_.latent_channels);
  const auto pieces = pieces_of(latents.size(2), 2);
  const int count = static_cast<int>(latents.size(0)) * static_cast<int>(pieces.size());
  int pieces_done = 0;
  std::vector<Tensor> videos;
  for (int64_t at = 0; at < latents.size(0); ++at) {
    const Tensor frames = frames_first(latents, at);
    FrameScene scene{spatial};
    std::vector<Tensor> parts;
    for (const nn::Range& r : pieces) {
      const Frames latent = lines_of(frames.slice(0, r.begin, r.end), dtype_, spatial);
      parts.push_back(channels_before_frames(spatial.join(decode_piece(latent, scene))));
      if (watch.piece) watch.piece(++pieces_done, count);
    }
    videos.push_back(joined(parts));
  }
  return ops::concat_rows(videos);
}

CogVideoXVaeEncoder::CogVideoXVaeEncoder(const CogVideoXVaeConfig& config,
                                         const nn::Weights& weights, DType dtype)
    : config_(config), dtype_(dtype) {
  const int groups = static_cast<int>(config.norm_num_groups);
  const int64_t deep = config.block_out_channels.back();
  int64_t in = config.block_out_channels.front();
  conv_in_ = CausalConv(weights, "encoder.conv_in.conv", in, config.in_channels, 3, dtype);
  for (size_t b = 0; b < config.block_out_channels.size(); ++b) {
    const int64_t out = config.block_out_channels[b];
    const std::string name = fmt::format("encoder.down_blocks.{}.", b);
    Level level;
    for (int64_t i = 0; i < config.layers_per_block; ++i)
      level.resnets.emplace_back(weights, fmt::format("{}resnets.{}", name, i), groups,
                                 i == 0 ? in : out, out, 0, dtype);
    if (b + 1 < config.block_out_channels.size())
      level.downsampler = weights.conv(name + "downsamplers.0.conv.weight",
                                       name + "downsamplers.0.conv.bias", {out, out, 3, 3}, dtype);
    level.fewer_frames = static_cast<int64_t>(b) < temporal_levels(config);
    levels_.push_back(std::move(level));
    in = out;
  }
  for (int i = 0; i < 2; ++i)
    middle_.emplace_back(weights, fmt::format("encoder.mid_block.resnets.{}", i), groups, deep,
                         deep, 0, dtype);
  norm_out_ = FrameNorm(weights, "encoder.norm_out", groups, deep, 0, dtype);
  conv_out_ =
      CausalConv(weights, "encoder.conv_out.conv", 2 * config.latent_channels, deep, 3, dtype);
}

Frames CogVideoXVaeEncoder::encode_piece(const Frames& video, FrameScene& scene) const {
  Frames x = conv_in_(video, scene, dtype_);
  // diffusers pads only below and to the right.
  const ops::Conv2dOptions downsampling{.stride = 2, .pad_bottom = 1, .pad_right = 1};
  for (const Level& level : levels_) {
    for (const FrameResnet& resnet : level.resnets) x = resnet(x, {}, scene);
    if (!level.downsampler) continue;
    if (level.fewer_frames) x = halved_frames(x);
    x = scene.spatial.conv(level.downsampler, x, downsampling);
  }
  for (const FrameResnet& resnet : middle_) x = resnet(x, {}, scene);
  return conv_out_(norm_out_(x, {}, scene), scene, DType::f32);
}

VaeMoments CogVideoXVaeEncoder::encode(const Tensor& video, nn::Spatial& spatial,
                                       const VaeWatch&) const {
  check_video("encode", video, config_.in_channels);
  std::vector<Tensor> means, logvars;
  const int64_t channels = config_.latent_channels;
  for (int64_t at = 0; at < video.size(0); ++at) {
    const Tensor frames = frames_first(video, at);
    FrameScene scene{spatial};
    std::vector<Tensor> parts;
    for (const nn::Range& r : pieces_of(video.size(2), 8))
      parts.push_back(channels_before_frames(spatial.join(
          encode_piece(lines_of(frames.slice(0, r.begin, r.end), dtype_, spatial), scene))));
    const Tensor moments = joined(parts);
    means.push_back(moments.slice(1, 0, channels).contiguous());
    logvars.push_back(moments.slice(1, channels, 2 * channels).contiguous());
  }
  VaeMoments result{ops::concat_rows(means), ops::concat_rows(logvars)};
  result.logvar = clamped_logvar(result.logvar);
  return result;
}

}  // namespace tessera::models
