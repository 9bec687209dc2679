#include <gtest/gtest.h>

#include "device/leg.h"
#include "device/on_gpu.h"
#include "models/text/tiny_text.h"
#include "models/vae/autoencoder_kl.h"
#include "models/vae/cogvideox_vae.h"
#include "models/vae/random_weights.h"
#include "nn/local_spatial.h"

namespace tessera::device {
namespace {

using models::RandomWeights;

WeightsOn weights_on(Device device) { return {device, std::make_shared<RandomWeights>()}; }

TEST(EncodersOnGpu, VaeDecodesAndEncodes) {
  models::AutoencoderKLConfig config;
  config.norm_num_groups = 4;
  config.block_out_channels = {8, 16};
  const Tensor latents = RandomWeights().get("z", {2, 4, 6, 5});
  const Tensor images = RandomWeights().get("x", {2, 3, 8, 12});
  nn::LocalSpatial spatial;
  const auto run = [&](Device device) {
    const auto weights = weights_on(device);
    const models::AutoencoderKL decoder(config, weights, DType::bf16);
    const models::AutoencoderKLEncoder encoder(config, weights, DType::bf16);
    const auto moments = encoder.encode(images.to(device), spatial);
    return std::vector{decoder.decode(decoder.unscale(latents.to(device)), spatial).to_floats(),
                       moments.mean.to_floats(), moments.logvar.to_floats()};
  };
  const auto want = run(Device::cpu);
  const Gpu gpu;
  const auto got = run(Device::cuda);
  for (size_t i = 0; i < want.size(); ++i) expect_same(got[i], want[i], DType::bf16);
}

TEST(EncodersOnGpu, VideoVaeDecodesAndEncodes) {
  models::CogVideoXVaeConfig config;
  config.block_out_channels = {4, 4, 8, 8};
  config.latent_channels = 4;
  config.layers_per_block = 1;
  config.norm_num_groups = 2;
  const Tensor latents = RandomWeights().get("z", {1, 4, 3, 2, 2});
  nn::LocalSpatial spatial;
  const Tensor video = RandomWeights().get("x", {1, 3, 9, 8, 16});
  const auto run = [&](Device device) {
    const auto weights = weights_on(device);
    const models::CogVideoXVae decoder(config, weights, DType::f32);
    const models::CogVideoXVaeEncoder encoder(config, weights, DType::f32);
    return std::vector{decoder.decode(decoder.unscale(latents.to(device)), spatial).to_floats(),
                       encoder.encode(video.to(device), spatial).logvar.to_floats()};
  };
  const auto want = run(Device::cpu);
  const Gpu gpu;
  const auto got = run(Device::cuda);
  for (size_t i = 0; i < want.size(); ++i) expect_same(got[i], want[i], DType::f32);
}

// Two texts of unequal lengths.
std::vector<float> encoded(const std::string& type, const base::Json& config, Device device,
                           DType dtype) {
  const auto weights = std::make_shared<WeightsOn>(
      device, std::make_shared<models::tiny::AnyWeights>("text_model."));
  const auto states = models::text_encoder_of(type, {config, "config.json"}, weights, dtype)
                          ->encode({{7, 8, 9, 1, 2, 3, 4, 5, 11, 12}, {5, 3}, 5});
  std::vector<float> all = states.last.to_floats();
  for (const Tensor& x : {states.previous, states.pooled, states.projected})
    if (x.defined()) {
      const auto more = x.to_floats();
      all.insert(all.end(), more.begin(), more.end());
    }
  return all;
}

void expect_equal(const std::string& type, const base::Json& config, DType dtype) {
  const auto want = encoded(type, config, Device::cpu, dtype);
  const Gpu gpu;
  expect_same(encoded(type, config, Device::cuda, dtype), want, dtype);
}

TEST(EncodersOnGpu, T5) {
  const base::Json config = {{"vocab_size", 20},
                             {"d_model", 8},
                             {"d_kv", 4},
                             {"d_ff", 12},
                             {"num_layers", 2},
                             {"num_heads", 3},
                             {"feed_forward_proj", "gated-gelu"}};
  expect_equal("T5EncoderModel", config, DType::f32);
  expect_equal("T5EncoderModel", config, DType::bf16);
}

TEST(EncodersOnGpu, ClipAndBert) {
  expect_equal("CLIPTextModelWithProjection",
               {{"vocab_size", 20},
                {"hidden_size", 8},
                {"intermediate_size", 12},
                {"num_hidden_layers", 2},
                {"num_attention_heads", 2},
                {"max_position_embeddings", 6},
                {"projection_dim", 5},
                {"eos_token_id", 2}},
               DType::f32);
  expect_equal("BertModel",
               {{"vocab_size", 20},
                {"hidden_size", 8},
                {"intermediate_size", 12},
                {"num_hidden_layers", 2},
                {"num_attention_heads", 2},
                {"max_position_embeddings", 6},
                {"type_vocab_size", 2}},
               DType::bf16);
}

}  // namespace
}  // namespace tessera::device
