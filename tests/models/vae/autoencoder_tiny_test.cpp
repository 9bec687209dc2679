#include "models/vae/autoencoder_tiny.h"

#include <gtest/gtest.h>

#include <cmath>

#include "nn/local_spatial.h"
#include "nn/packing_weights.h"
#include "tessera/error.h"
#include "test_paths.h"

namespace tessera::models {
namespace {

using base::Json;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

// The formula of tools/make_tiny_vae_golden.py.
Tensor wave(const Shape& shape, int seed, double size) {
  const Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i)
    x.data<float>()[i] = static_cast<float>(size * std::sin(0.37 * double(i + 1) + 0.11 * seed));
  return x;
}

class Waves : public nn::PackingWeights {
 public:
  bool has(const std::string&) const override { return true; }
  Tensor stored(const std::string& name, const Shape& shape) const override {
    int seed = 0;
    for (const char c : name) seed += c;
    return wave(shape, seed, shape.rank() == 1 ? 0.1 : 2.5 / std::sqrt(double(shape[1]) * 9));
  }
};

Json golden() { return base::read_json(TESSERA_TEST_DATA "/tiny_vae.json"); }

AutoencoderTinyConfig config() {
  return parse_autoencoder_tiny_config(golden()["config"], "config.json");
}

double error_of(const Tensor& made, const Json& expected) {
  const std::vector<float> x = made.to_floats(), y = expected;
  double worst = x.size() == y.size() ? 0 : 1e9, size = 0;
  for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
    worst = std::max(worst, std::abs(double(x[i]) - double(y[i])));
    size = std::max(size, std::abs(double(y[i])));
  }
  return worst / size;
}

TEST(AutoencoderTiny, ImagesAndLatentsAreThoseOfDiffusers) {
  nn::LocalSpatial spatial;
  const AutoencoderTiny decoder(config(), Waves(), DType::f32);
  EXPECT_LT(error_of(decoder.decode(wave({1, 4, 3, 5}, 1, 4), spatial), golden()["image"]), 2e-5);
  const AutoencoderTinyEncoder encoder(config(), Waves(), DType::f32);
  const VaeMoments moments = encoder.encode(wave({1, 3, 12, 20}, 2, 0.9), spatial);
  EXPECT_LT(error_of(moments.mean, golden()["latents"]), 2e-5);
}

TEST(AutoencoderTiny, ScalingIsUndone) {
  const AutoencoderTiny decoder(config(), Waves(), DType::f32);
  const AutoencoderTinyEncoder encoder(config(), Waves(), DType::f32);
  const Tensor x = wave({1, 4, 2, 2}, 3, 2);
  const std::vector<float> there = decoder.unscale(encoder.scale({x, x}).mean).to_floats();
  for (size_t i = 0; i < there.size(); ++i) EXPECT_NEAR(there[i], x.to_floats()[i], 1e-5);
  EXPECT_NEAR(decoder.unscale(x).to_floats()[0], x.to_floats()[0] / 1.5f + 0.25f, 1e-6);
}

TEST(AutoencoderTiny, UnfitConfigurationsAndInputsAreRefused) {
  const auto refused = [](Json change) {
    Json json = golden()["config"];
    json.update(change);
    try {
      parse_autoencoder_tiny_config(json, "config.json");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing was refused");
  };
  EXPECT_NE(refused({{"act_fn", "gelu"}}).find("act_fn"), std::string::npos);
  EXPECT_NE(refused({{"upsampling_scaling_factor", 4}}).find("expected 2"), std::string::npos);
  EXPECT_NE(refused({{"num_decoder_blocks", {1, 1}}}).find("levels"), std::string::npos);
  EXPECT_NE(refused({{"decoder_block_out_channels", {8, 16, 8}}}).find("different widths"),
            std::string::npos);
  EXPECT_NE(refused({{"latent_channels", 0}}).find("latent_channels"), std::string::npos);
  EXPECT_NE(refused({{"num_encoder_blocks", {1, 1000, 1}}}).find("at most 100"), std::string::npos);
  nn::LocalSpatial spatial;
  const AutoencoderTiny decoder(config(), Waves(), DType::f32);
  EXPECT_THROW(decoder.decode(wave({1, 5, 3, 5}, 1, 1), spatial), Error);
}

}  // namespace
}  // namespace tessera::models
