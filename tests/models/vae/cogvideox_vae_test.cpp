#include "models/vae/cogvideox_vae.h"

#include <gtest/gtest.h>

#include "models/vae/random_weights.h"
#include "nn/local_spatial.h"
#include "tessera/error.h"

namespace tessera::models {
namespace {

using tensor::DType;
using tensor::Tensor;

CogVideoXVaeConfig tiny() {
  CogVideoXVaeConfig c;
  c.block_out_channels = {4, 4, 8, 8};
  c.latent_channels = 4;
  c.layers_per_block = 1;
  c.norm_num_groups = 2;
  return c;
}

TEST(CogVideoXVae, FramesGrowByFourFromTheSecondOn) {
  const RandomWeights weights;
  nn::LocalSpatial spatial;
  const CogVideoXVae vae(tiny(), weights, DType::f32);
  int pieces = 0;
  const auto count = [&](int, int all) { pieces = all; };
  EXPECT_EQ(
      vae.decode(Tensor::zeros({1, 4, 3, 1, 2}, DType::f32), spatial, {.piece = count}).shape(),
      (tensor::Shape{1, 3, 9, 8, 16}));
  EXPECT_EQ(pieces, 1);
  EXPECT_EQ(
      vae.decode(Tensor::zeros({1, 4, 5, 1, 1}, DType::f32), spatial, {.piece = count}).size(2),
      17);
  EXPECT_EQ(pieces, 2);
  EXPECT_EQ(vae.decode(Tensor::zeros({1, 4, 4, 1, 1}, DType::f32), spatial).size(2), 16);
  EXPECT_EQ(vae.decode(Tensor::zeros({1, 4, 1, 1, 1}, DType::f32), spatial).size(2), 1);
}

TEST(CogVideoXVae, EncodesToAQuarterOfTheFrames) {
  const RandomWeights weights;
  nn::LocalSpatial spatial;
  const CogVideoXVaeEncoder vae(tiny(), weights, DType::f32);
  EXPECT_EQ(vae.encode(Tensor::zeros({1, 3, 9, 8, 16}, DType::f32), spatial).mean.shape(),
            (tensor::Shape{1, 4, 3, 1, 2}));
}

TEST(CogVideoXVae, RefusesWhatItIsNot) {
  const auto refused = [](const char* json) {
    try {
      parse_cogvideox_vae_config(base::Json::parse(json), "vae/config.json");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("nothing");
  };
  EXPECT_NE(refused(R"({"use_quant_conv": true})").find("use_quant_conv"), std::string::npos);
  EXPECT_NE(refused(R"({"temporal_compression_ratio": 3})").find("ratio' 3"), std::string::npos);
  EXPECT_NE(refused(R"({"block_out_channels": [5]})").find("holds 5"), std::string::npos);
  EXPECT_NE(refused(R"({"scaling_factor": -1})").find("above 0"), std::string::npos);
  EXPECT_EQ(parse_cogvideox_vae_config(base::Json::object(), "c").layers_per_block, 3);
}

TEST(CogVideoXVae, SaysWhatFits) {
  const RandomWeights weights;
  nn::LocalSpatial spatial;
  const CogVideoXVae vae(tiny(), weights, DType::f32);
  EXPECT_THROW(vae.decode(Tensor::zeros({1, 3, 1, 1, 1}, DType::f32), spatial), Error);
}

}  // namespace
}  // namespace tessera::models
