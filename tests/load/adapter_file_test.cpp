#include "load/adapter_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "load/safetensors.h"
#include "tessera/error.h"

namespace tessera::load {
namespace {

using tensor::DType;
using tensor::Tensor;
using Tensors = std::map<std::string, Tensor>;

const AdapterNames& names() {
  static const AdapterNames all({{"transformer",
                                  "FluxTransformer2DModel",
                                  {{"transformer_blocks.0.attn.to_q", 8, 6},
                                   {"transformer_blocks.0.attn.to_k", 8, 6},
                                   {"transformer_blocks.0.attn.to_v", 8, 6}}}});
  return all;
}

Tensor filled(const tensor::Shape& shape, float value) {
  const Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = value + float(i % 5);
  return x;
}

const std::string kQ = "transformer.transformer_blocks.0.attn.to_q";

Tensors pair() {
  return {{kQ + ".lora_A.weight", filled({2, 6}, 1)}, {kQ + ".lora_B.weight", filled({8, 2}, 1)}};
}

class AdapterFile : public testing::Test {
 protected:
  std::map<std::string, nn::WeightChanges> read(
      const Tensors& tensors, double strength = 1,
      const std::map<std::string, std::string>& metadata = {}) {
    write_safetensors(path_, tensors, metadata);
    return read_adapter(path_, strength, names());
  }
  std::string refusal(const Tensors& tensors) {
    try {
      read(tensors);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::model);
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
      return e.what();
    }
    return "";
  }
  void TearDown() override { std::filesystem::remove(path_); }
  const std::string path_ =
      (std::filesystem::temp_directory_path() / "tessera_adapter_test.safetensors").string();
};

// The first element of B, including the scale.
float scale_of(const std::map<std::string, nn::WeightChanges>& changes) {
  return changes.at("transformer")
      .at("transformer_blocks.0.attn.to_q.weight")
      .front()
      .up.to_floats()
      .front();
}

}  // namespace

TEST_F(AdapterFile, ScalesByAlphaOverRankAndStrength) {
  EXPECT_FLOAT_EQ(scale_of(read(pair())), 1);
  EXPECT_FLOAT_EQ(scale_of(read(pair(), -0.5)), -0.5);
  Tensors with_alpha = pair();
  with_alpha[kQ + ".alpha"] = filled({}, 8);
  EXPECT_FLOAT_EQ(scale_of(read(with_alpha, 0.5)), 2);
  EXPECT_FLOAT_EQ(scale_of(read(pair(), 1,
                                {{"lora_adapter_metadata",
                                  R"({"transformer.r": 2, "transformer.lora_alpha": 6})"}})),
                  3);
  EXPECT_FLOAT_EQ(scale_of(read(pair(), 1,
                                {{"lora_adapter_metadata",
                                  R"({"transformer.lora_alpha": 6, "transformer.use_rslora": true,
                          "transformer.alpha_pattern": {"attn.to_q": 4}})"}})),
                  4 / std::sqrt(2.0f));
}

TEST_F(AdapterFile, CutsAFusedLayerIntoItsRows) {
  const std::string fused = "lora_unet_double_blocks_0_img_attn_qkv";
  const Tensor up = filled({24, 2}, 0);
  const auto changes =
      read({{fused + ".lora_down.weight", filled({2, 6}, 1)}, {fused + ".lora_up.weight", up}})
          .at("transformer");
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes.at("transformer_blocks.0.attn.to_k.weight").front().up.to_floats(),
            up.slice(0, 8, 16).to_floats());
}

TEST_F(AdapterFile, MultipliesKroneckerFactors) {
  const auto changes = read({{kQ + ".lokr_w1", filled({2, 2}, 1)},
                             {kQ + ".lokr_w2", filled({4, 3}, 0)},
                             {kQ + ".alpha", filled({}, 100)}})
                           .at("transformer");
  const Tensor dense = changes.begin()->second.front().dense();
  ASSERT_EQ(dense.shape(), (tensor::Shape{8, 6}));
  EXPECT_FLOAT_EQ(dense.row<float>(5)[4], 4 * 4);  // w1[1, 1] * w2[1, 1]; both whole: no alpha
}

TEST_F(AdapterFile, RefusesWhatItCannotUseByName) {
  Tensors one = pair();
  one.erase(kQ + ".lora_B.weight");
  EXPECT_NE(refusal(one).find("to_q.lora_A.weight"), std::string::npos);
  one = pair();
  one["transformer.transformer_blocks.7.attn.to_q.lora_A.weight"] = filled({2, 6}, 1);
  EXPECT_NE(refusal(one).find("transformer_blocks.7"), std::string::npos);
  one = pair();
  one[kQ + ".lora_B.weight"] = filled({9, 2}, 1);
  EXPECT_NE(refusal(one).find("gives 9 channels"), std::string::npos);
  one[kQ + ".lora_B.weight"] = filled({8, 3}, 1);
  EXPECT_NE(refusal(one).find("two ranks"), std::string::npos);
  one = pair();
  one[kQ + ".lora_A.weight"].data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(refusal(one).find("NaN"), std::string::npos);
  one = pair();
  one[kQ + ".lora_down.weight"] = filled({2, 6}, 1);
  EXPECT_NE(refusal(one).find("same part of one layer"), std::string::npos);
  one = pair();
  one[kQ + ".hada_w1_a"] = filled({8, 2}, 1);
  EXPECT_NE(refusal(one), "");
  EXPECT_NE(refusal({{"joint_blocks.0.x_block.attn.qkv.weight", filled({2, 2}, 1)}})
                .find("Stable Diffusion 3"),
            std::string::npos);
}

}  // namespace tessera::load
