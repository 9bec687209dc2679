#include "models/vae/autoencoder_kl.h"

#include <gtest/gtest.h>

#include <functional>

#include "models/vae/random_weights.h"
#include "nn/local_spatial.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::models {
namespace {

using base::Json;
using tensor::Device;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

AutoencoderKLConfig tiny() {
  AutoencoderKLConfig c;
  c.norm_num_groups = 4;
  c.block_out_channels = {8, 16};
  return c;
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(AutoencoderKL, MissingKeysHaveTheValuesOfTheClass) {
  const AutoencoderKLConfig c = parse_autoencoder_kl_config(Json::object(), "c");
  EXPECT_EQ(c.block_out_channels, std::vector<int64_t>{64});
  EXPECT_EQ(c.layers_per_block, 1);
  EXPECT_EQ(c.norm_num_groups, 32);
  EXPECT_EQ(c.latent_channels, 4);
  EXPECT_DOUBLE_EQ(c.scaling_factor, 0.18215);
  EXPECT_EQ(c.shift_factor, 0);
  EXPECT_TRUE(c.use_quant_conv && c.use_post_quant_conv && c.mid_block_add_attention);
}

TEST(AutoencoderKL, NamesAConfigThatDoesNotFit) {
  auto says = [](const Json& config, const char* words) {
    const std::string message =
        message_of([&] { parse_autoencoder_kl_config(config, "vae.json"); });
    EXPECT_NE(message.find(words), std::string::npos) << message;
    EXPECT_NE(message.find("vae.json"), std::string::npos) << message;
  };
  says({{"latent_channels", -4}}, "'latent_channels' is -4");
  says({{"block_out_channels", Json::array()}}, "'block_out_channels' is []");
  says({{"block_out_channels", Json::array({100})}}, "norm_num_groups 32");
  says({{"scaling_factor", 0}}, "'scaling_factor' is 0");
  says({{"scaling_factor", -0.18215}}, "above 0");
  says({{"shift_factor", 1e300}}, "'shift_factor' is 1e+300");
  says({{"sample_size", Json::array({-512, 512})}}, "'sample_size' is -512");
  says({{"norm_num_groups", 0}}, "'norm_num_groups' is 0");
  says({{"use_quant_conv", 1}}, "'use_quant_conv' is 1");
  says(Json::array(), "expected an object");
  says({{"act_fn", "gelu"}}, "'act_fn' is \"gelu\"");
  says({{"up_block_types", Json::array({"AttnUpDecoderBlock2D"})}}, "holds \"AttnUpDecoderBlock2D");
}

TEST(AutoencoderKL, MetaGivesTheShapesAndWorkOfTheRealRun) {
  tensor::Scope scope;
  double flops[2];
  Shape shapes[2];
  for (int i = 0; i < 2; ++i) {
    scope.meter = std::make_shared<tensor::Meter>();
    const tensor::BindScope bind(scope);
    const Device device = i ? Device::meta : Device::cpu;
    const RandomWeights weights(device);
    nn::LocalSpatial spatial;
    const AutoencoderKL vae(tiny(), weights, DType::bf16);
    const Tensor out = vae.decode(Tensor::zeros({2, 4, 5, 3}, DType::f32, device), spatial);
    EXPECT_EQ(out.dtype(), DType::f32);
    shapes[i] = out.shape();
    flops[i] = scope.meter->total().flops;
  }
  EXPECT_EQ(shapes[0], Shape({2, 3, 10, 6}));
  EXPECT_EQ(shapes[1], shapes[0]);
  EXPECT_EQ(flops[1], flops[0]);
}

TEST(AutoencoderKL, AnImageDoesNotDependOnItsNeighboursOrThreads) {
  const RandomWeights weights;
  nn::LocalSpatial spatial;
  const AutoencoderKL vae(tiny(), weights, DType::bf16);
  const Tensor latents = weights.get("z", {2, 4, 6, 5});
  const Tensor both = vae.decode(latents, spatial);
  base::ThreadPool pool(3);
  tensor::Scope threaded;
  threaded.pool = &pool;
  const tensor::BindScope bind(threaded);
  const Tensor second = vae.decode(latents.slice(0, 1, 2), spatial);
  EXPECT_EQ(both.slice(0, 1, 2).to_floats(), second.to_floats());
  EXPECT_EQ(vae.decode(latents.slice(0, 0, 0), spatial).shape(), Shape({0, 3, 12, 10}));
}

TEST(AutoencoderKL, DecodesWithoutKeepingDoubles) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const RandomWeights weights(Device::meta);
  AutoencoderKLConfig c;
  c.block_out_channels = {128, 256, 512, 512};
  c.layers_per_block = 2;
  const AutoencoderKL vae(c, weights, DType::bf16);
  const tensor::BindScope bind(scope);
  nn::LocalSpatial spatial;
  vae.decode(Tensor::empty({1, 4, 64, 64}, DType::f32, Device::meta), spatial);
  // The peak: 256 channels of 512 x 512, and twice the first resnet's 128.
  const int64_t widest = 512 * 512 * (256 + 128 + 128) * 2;
  EXPECT_LE(scope.memory->peak(tensor::MemoryClass::activations), widest + (1 << 20));
}

TEST(AutoencoderKL, NamesLatentsThatDoNotFit) {
  const RandomWeights weights;
  nn::LocalSpatial spatial;
  const AutoencoderKL vae(tiny(), weights, DType::f32);
  const AutoencoderKLEncoder encoder(tiny(), weights, DType::f32);
  EXPECT_NE(message_of([&] {
              vae.decode(Tensor::zeros({1, 3, 4, 4}, DType::f32), spatial);
            }).find("[1, 3, 4, 4]"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              encoder.encode(Tensor::zeros({1, 4, 4, 4}, DType::f32), spatial);
            }).find("[1, 4, 4, 4]"),
            std::string::npos);
}

TEST(AutoencoderKL, UnscaleDividesAndShifts) {
  AutoencoderKLConfig c = tiny();
  c.scaling_factor = 0.5;
  c.shift_factor = 0.25;
  const AutoencoderKL vae(c, RandomWeights(), DType::f32);
  EXPECT_EQ(vae.unscale(Tensor::from(std::vector<float>{1, -2}, {1, 1, 1, 2})).to_floats(),
            (std::vector<float>{2.25f, -3.75f}));
}

TEST(AutoencoderKL, EncodesToClampedMoments) {
  const RandomWeights weights;
  nn::LocalSpatial spatial;
  const AutoencoderKLEncoder encoder(tiny(), weights, DType::f32);
  const auto m = encoder.encode(weights.get("x", {1, 3, 9, 8}), spatial);
  EXPECT_EQ(m.mean.shape(), Shape({1, 4, 4, 4}));
  for (float v : m.logvar.to_floats()) EXPECT_TRUE(v >= -30 && v <= 20);
}

}  // namespace
}  // namespace tessera::models
