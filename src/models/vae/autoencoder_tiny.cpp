#include "models/vae/autoencoder_tiny.h"

#include <cmath>

#include "base/config_reader.h"
#include "base/fail.h"
#include "ops/elementwise.h"

namespace tessera::models {
namespace {

using nn::Plane;
using tensor::DType;
using tensor::Tensor;

constexpr int64_t kMost = 65536;

// The same scale and shift for all channels: f32 [batch, 2, channels].
Tensor affine(const Tensor& x, float scale, float shift) {
  const tensor::Shape shape{x.size(0), 2, x.size(3)};
  if (x.is_meta()) return Tensor::empty(shape, DType::f32, x.device());
  std::vector<float> values;
  for (int64_t i = 0; i < 2 * x.size(0); ++i)
    values.insert(values.end(), static_cast<size_t>(x.size(3)), i % 2 == 0 ? scale : shift);
  return Tensor::from(std::span<const float>(values), shape).to(x.device());
}

Plane relu(const Plane& x) { return {ops::relu(x.data), x.height, x.begin}; }

std::vector<int64_t> read_list(const base::ConfigReader& reader, const char* key,
                               const std::vector<int64_t>& missing, int64_t least) {
  const std::vector<int64_t> values = reader.sizes(key, missing);
  require(!values.empty() && values.size() <= 8, ErrorCode::model,
          "{}: '{}' is [{}]; expected 1 to 8 numbers", reader.where(), key,
          fmt::join(values, ", "));
  for (const int64_t value : values)
    require(value >= least && value <= kMost, ErrorCode::model,
            "{}: '{}' holds {}; expected {} to {}", reader.where(), key, value, least, kMost);
  return values;
}

void check_levels(const base::ConfigReader& reader, const char* widths, const char* blocks,
                  const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  require(a.size() == b.size(), ErrorCode::model, "{}: '{}' has {} levels, '{}' {}", reader.where(),
          widths, a.size(), blocks, b.size());
  for (const int64_t width : a)
    require(width == a.front(), ErrorCode::model,
            "{}: '{}' is [{}]; levels of different widths are not supported", reader.where(),
            widths, fmt::join(a, ", "));
  for (const int64_t count : b)
    require(count <= 100, ErrorCode::model, "{}: '{}' holds {}; expected at most 100",
            reader.where(), blocks, count);
}

void check_batch(const Tensor& x, int64_t channels, const char* input) {
  require(x.rank() == 4 && x.size(1) == channels && x.dtype() == DType::f32, ErrorCode::usage,
          "a tiny VAE was given {} {} {}; expected f32 [batch, {}, height, width]", input,
          tensor::name_of(x.dtype()), x.shape().str(), channels);
}

void show(const VaeWatch& watch, size_t level, const Plane& x, nn::Spatial& spatial) {
  if (watch.trace) watch.trace(fmt::format("level.{}", level), channels_first(spatial.join(x)));
}

ops::ConvWeight plain_conv(const VaeLoader& load, const std::string& name, int64_t out, int64_t in,
                           bool bias) {
  return load.weights.conv(name + ".weight", bias ? name + ".bias" : "", {out, in, 3, 3},
                           load.dtype);
}

}  // namespace

AutoencoderTinyConfig parse_autoencoder_tiny_config(const base::Json& config,
                                                    const std::string& where) {
  const base::ConfigReader reader(config, where);
  AutoencoderTinyConfig c;
  c.in_channels = reader.integer("in_channels", c.in_channels, 1, kMost);
  c.out_channels = reader.integer("out_channels", c.out_channels, 1, kMost);
  c.latent_channels = reader.integer("latent_channels", c.latent_channels, 1, kMost);
  c.encoder_block_out_channels =
      read_list(reader, "encoder_block_out_channels", c.encoder_block_out_channels, 1);
  c.decoder_block_out_channels =
      read_list(reader, "decoder_block_out_channels", c.decoder_block_out_channels, 1);
  c.num_encoder_blocks = read_list(reader, "num_encoder_blocks", c.num_encoder_blocks, 0);
  c.num_decoder_blocks = read_list(reader, "num_decoder_blocks", c.num_decoder_blocks, 0);
  check_levels(reader, "encoder_block_out_channels", "num_encoder_blocks",
               c.encoder_block_out_channels, c.num_encoder_blocks);
  check_levels(reader, "decoder_block_out_channels", "num_decoder_blocks",
               c.decoder_block_out_channels, c.num_decoder_blocks);
  require(c.encoder_block_out_channels.size() == c.decoder_block_out_channels.size(),
          ErrorCode::model, "{}: the encoder has {} levels, the decoder {}; expected as many",
          where, c.encoder_block_out_channels.size(), c.decoder_block_out_channels.size());
  reader.choice("act_fn", "relu", {"relu"});
  reader.choice("upsample_fn", "nearest", {"nearest"});
  require(reader.integer("upsampling_scaling_factor", 2, 1, 16) == 2, ErrorCode::model,
          "{}: 'upsampling_scaling_factor': expected 2", where);
  c.scaling_factor = reader.positive("scaling_factor", c.scaling_factor);
  c.shift_factor = reader.number("shift_factor", c.shift_factor, -1000, 1000);
  return c;
}

Tiling tiling_of(const AutoencoderTinyConfig& config, int64_t pixels) {
  const int64_t factor = int64_t{1} << (config.decoder_block_out_channels.size() - 1);
  const TileSide side = tile_side(pixels > 0 ? pixels : 512, factor, 0.125);
  return {side, side};
}

TinyBlock::TinyBlock(const VaeLoader& load, const std::string& name, int64_t channels) {
  for (int i = 0; i < 3; ++i)
    conv_[i] = load.conv(fmt::format("{}.conv.{}", name, 2 * i), channels, channels, 3);
}

Plane TinyBlock::operator()(const Plane& x, nn::Spatial& spatial) const {
  const Plane first = relu(spatial.conv(conv_[0], x, same_size()));
  const Plane second = relu(spatial.conv(conv_[1], first, same_size()));
  ops::Conv2dOptions options = same_size();
  options.residual = x.data;
  return relu(spatial.conv(conv_[2], second, options));
}

AutoencoderTiny::AutoencoderTiny(const AutoencoderTinyConfig& config, const nn::Weights& weights,
                                 DType dtype)
    : config_(config), dtype_(dtype) {
  const VaeLoader load{weights, dtype, 1};
  const int64_t width = config.decoder_block_out_channels.front();
  const size_t count = config.num_decoder_blocks.size();
  conv_in_ = load.conv("decoder.layers.0", width, config.latent_channels, 3);
  int layer = 2;  // layer 1 is the activation
  for (size_t b = 0; b < count; ++b) {
    const bool last = b + 1 == count;
    Level level;
    for (int64_t i = 0; i < config.num_decoder_blocks[b]; ++i)
      level.blocks.emplace_back(load, fmt::format("decoder.layers.{}", layer++), width);
    if (!last) ++layer;  // doubles the size
    level.out = plain_conv(load, fmt::format("decoder.layers.{}", layer++),
                           last ? config.out_channels : width, width, last);
    levels_.push_back(std::move(level));
  }
}

Tensor AutoencoderTiny::unscale(const Tensor& latents) const {
  if (latents.is_meta()) return Tensor::empty(latents.shape(), DType::f32, latents.device());
  std::vector<float> values = latents.to_floats();
  for (float& value : values)
    value = static_cast<float>(double(value) / config_.scaling_factor + config_.shift_factor);
  return Tensor::from(std::span<const float>(values), latents.shape()).to(latents.device());
}

Tensor AutoencoderTiny::decode(const Tensor& latents, nn::Spatial& spatial,
                               const VaeWatch& watch) const {
  check_batch(latents, config_.latent_channels, "latents");
  Plane x = lines_of(ops::softcap(latents.contiguous(), 3), dtype_, spatial);
  x = relu(spatial.conv(conv_in_, x, same_size()));
  for (size_t b = 0; b < levels_.size(); ++b) {
    for (const TinyBlock& block : levels_[b].blocks) x = block(x, spatial);
    ops::Conv2dOptions options = same_size();
    options.upsample = b + 1 < levels_.size();
    if (!options.upsample) {
      options.out = DType::f32;
      options.out_as_input = false;
    }
    x = spatial.conv(levels_[b].out, x, options);
    show(watch, b, x, spatial);
  }
  x.data = ops::channel_affine(x.data, affine(x.data, 2, -1), false);
  return channels_first(spatial.join(x));
}

AutoencoderTinyEncoder::AutoencoderTinyEncoder(const AutoencoderTinyConfig& config,
                                               const nn::Weights& weights, DType dtype)
    : config_(config), dtype_(dtype) {
  const VaeLoader load{weights, dtype, 1};
  const int64_t width = config.encoder_block_out_channels.front();
  int layer = 0;
  for (size_t b = 0; b < config.num_encoder_blocks.size(); ++b) {
    Level level;
    level.in = plain_conv(load, fmt::format("encoder.layers.{}", layer++), width,
                          b == 0 ? config.in_channels : width, b == 0);
    for (int64_t i = 0; i < config.num_encoder_blocks[b]; ++i)
      level.blocks.emplace_back(load, fmt::format("encoder.layers.{}", layer++), width);
    levels_.push_back(std::move(level));
  }
  conv_out_ = load.conv(fmt::format("encoder.layers.{}", layer), config.latent_channels, width, 3);
}

VaeMoments AutoencoderTinyEncoder::encode(const Tensor& images, nn::Spatial& spatial,
                                          const VaeWatch& watch) const {
  check_batch(images, config_.in_channels, "images");
  Plane x = lines_of(images, dtype_, spatial);
  for (size_t b = 0; b < levels_.size(); ++b) {
    ops::Conv2dOptions options = same_size();
    if (b == 0) options.scale_shift = affine(x.data, 0.5f, 0.5f);  // to 0 .. 1
    if (b > 0) options.stride = 2;
    x = spatial.conv(levels_[b].in, x, options);
    for (const TinyBlock& block : levels_[b].blocks) x = block(x, spatial);
    show(watch, b, x, spatial);
  }
  ops::Conv2dOptions last = same_size();
  last.out = DType::f32;
  last.out_as_input = false;
  const Tensor mean = channels_first(spatial.join(spatial.conv(conv_out_, x, last)));
  if (mean.is_meta()) return {mean, mean};
  const std::vector<float> log_variance(static_cast<size_t>(mean.elements()), -30.0f);
  return {mean, Tensor::from(std::span<const float>(log_variance), mean.shape()).to(mean.device())};
}

VaeMoments AutoencoderTinyEncoder::scale(const VaeMoments& moments) const {
  return scaled_moments(moments, config_.shift_factor, config_.scaling_factor);
}

}  // namespace tessera::models
