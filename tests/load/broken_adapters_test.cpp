#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "load/adapter_file.h"
#include "load/safetensors.h"
#include "ops/elementwise.h"
#include "tessera/error.h"

// Refused adapter files: each error names the fault, and no part of the file is used.
namespace tessera::load {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;
using Tensors = std::map<std::string, Tensor>;

// A FLUX with a single block, 8 wide, and its CLIP.
const AdapterNames& names() {
  const std::string block = "transformer_blocks.0.";
  static const AdapterNames all(
      {{"transformer",
        "FluxTransformer2DModel",
        {{block + "attn.to_q", 8, 6},
         {block + "attn.to_k", 8, 6},
         {block + "attn.to_v", 8, 6},
         {block + "attn.add_q_proj", 8, 6},
         {"single_transformer_blocks.0.attn.to_q", 8, 6},
         {"norm_out.linear", 16, 8}}},
       {"text_encoder", "CLIPTextModel", {{"text_model.encoder.layers.0.mlp.fc1", 12, 6}}}});
  return all;
}

Tensor filled(const Shape& shape, float value = 0.5f, DType dtype = DType::f32) {
  const Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = value;
  return tensor::is_float(dtype) ? ops::cast(x, dtype) : Tensor::zeros(shape, dtype);
}

const std::string kQ = "transformer.transformer_blocks.0.attn.to_q";
const std::string kK = "transformer.transformer_blocks.0.attn.to_k";
const std::string kKohya = "lora_unet_double_blocks_0_img_attn_qkv";
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// Two valid layers.
Tensors sound() {
  return {{kQ + ".lora_A.weight", filled({2, 6})},
          {kQ + ".lora_B.weight", filled({8, 2})},
          {kK + ".lora_A.weight", filled({2, 6})},
          {kK + ".lora_B.weight", filled({8, 2})}};
}
Tensors with(Tensors tensors, const std::string& name, const Tensor& x) {
  tensors[name] = x;
  return tensors;
}
Tensors without(const std::string& name) {
  Tensors tensors = sound();
  tensors.erase(name);
  return tensors;
}
Tensors loha(const std::string& changed = "", const Shape& shape = {}) {
  Tensors tensors{{kQ + ".hada_w1_a", filled({8, 2})},
                  {kQ + ".hada_w1_b", filled({2, 6})},
                  {kQ + ".hada_w2_a", filled({8, 2})},
                  {kQ + ".hada_w2_b", filled({2, 6})}};
  if (!changed.empty()) tensors[kQ + changed] = filled(shape);
  return tensors;
}
Tensors lokr(const Shape& w1, const Shape& w2) {
  return {{kQ + ".lokr_w1", filled(w1)}, {kQ + ".lokr_w2", filled(w2)}};
}

struct Broken {
  const char* why;
  Tensors tensors;
  std::vector<const char*> named;  ///< parts of the message
  std::map<std::string, std::string> metadata{};
};

std::vector<Broken> pairs_that_do_not_fit() {
  const std::string down = kQ + ".lora_A.weight", up = kQ + ".lora_B.weight";
  return {
      {"no up", without(up), {"to_q.lora_A", "'up'"}},
      {"no down", without(down), {"to_q.lora_B", "'down'"}},
      {"two ranks", with(sound(), up, filled({8, 3})), {"to_q.lora_A", "two ranks"}},
      {"another width", with(sound(), down, filled({2, 7})), {"to_q.lora_A", "reads 7"}},
      {"another height", with(sound(), up, filled({9, 2})), {"to_q.lora_B", "gives 9"}},
      {"transposed",
       with(with(sound(), down, filled({6, 2})), up, filled({2, 8})),
       {"to_q.lora_A"}},
      {"rank zero",
       with(with(sound(), down, filled({0, 6})), up, filled({8, 0})),
       {"to_q", "rank 0"}},
      {"a vector", with(sound(), down, filled({6})), {"to_q.lora_A", "matrix"}},
      {"a scalar", with(sound(), up, filled({})), {"to_q.lora_B", "matrix"}},
      {"integers", with(sound(), up, filled({8, 2}, 0, DType::i8)), {"to_q.lora_B", "floats"}},
      {"long integers",
       with(sound(), down, filled({2, 6}, 0, DType::i64)),
       {"to_q.lora_A", "floats"}},
      {"NaN in down", with(sound(), down, filled({2, 6}, kNan)), {"to_q.lora_A", "NaN"}},
      {"infinity in up", with(sound(), up, filled({8, 2}, -kInf)), {"to_q.lora_B", "NaN"}},
      {"NaN in bf16", with(sound(), up, filled({8, 2}, kNan, DType::bf16)), {"to_q.lora_B", "NaN"}},
      {"a fused layer of two parts",
       {{kKohya + ".lora_down.weight", filled({2, 6})},
        {kKohya + ".lora_up.weight", filled({16, 2})}},
       {"img_attn_qkv.lora_up", "gives 16", "24"}}};
}

std::vector<Broken> scales_and_settings() {
  const std::string alpha = kQ + ".alpha";
  const auto settings = [](const char* text) {
    return std::map<std::string, std::string>{{"lora_adapter_metadata", text}};
  };
  return {{"alpha is NaN", with(sound(), alpha, filled({}, kNan)), {"to_q.alpha"}},
          {"alpha is infinite", with(sound(), alpha, filled({1}, kInf)), {"to_q.alpha"}},
          {"alpha is a vector", with(sound(), alpha, filled({2})), {"to_q.alpha", "single"}},
          {"alpha is empty", with(sound(), alpha, filled({0})), {"to_q.alpha"}},
          {"alpha is whole", with(sound(), alpha, filled({}, 0, DType::i64)), {"to_q.alpha"}},
          {"alpha alone", {{alpha, filled({})}}, {"to_q.alpha"}},
          {"alpha overflows",
           with(with(sound(), alpha, filled({}, 3e38f)), kQ + ".lora_B.weight", filled({8, 2}, 9)),
           {"to_q.lora_B", "finite"}},
          {"settings are no JSON", sound(), {"lora_adapter_metadata"}, settings("{\"r\": ")},
          {"settings are a list", sound(), {"no object"}, settings("[1, 2]")},
          {"alpha of the settings is infinite",
           sound(),
           {},
           settings(R"({"transformer.lora_alpha": 1e999})")},
          {"magnitude alone", {{kQ + ".lora_magnitude_vector", filled({8})}}, {"to_q"}},
          {"magnitude of another height",
           with(sound(), kQ + ".lora_magnitude_vector", filled({7})),
           {"magnitude_vector", "8 norms"}},
          {"NaN among magnitudes",
           with(sound(), kQ + ".lora_magnitude_vector", filled({8}, kNan)),
           {"magnitude_vector", "NaN"}},
          {"two magnitudes",
           with(with(sound(), kQ + ".lora_magnitude_vector", filled({8})), kQ + ".dora_scale",
                filled({8, 1})),
           {"dora_scale", "no use"}},
          {"columns of three layers together",
           {{kKohya + ".lora_down.weight", filled({2, 6})},
            {kKohya + ".lora_up.weight", filled({24, 2})},
            {kKohya + ".dora_scale", filled({1, 6})}},
           {"dora_scale"}}};
}

std::vector<Broken> products() {
  return {{"LoHa without a part",
           [] {
             Tensors t = loha();
             t.erase(kQ + ".hada_w2_b");
             return t;
           }(),
           {"hada", "hada_w2_b"}},
          {"LoHa of two ranks", loha(".hada_w1_b", {3, 6}), {"hada_w1_a", "fit"}},
          {"LoHa of another height", loha(".hada_w2_a", {9, 2}), {"to_q", "gives 9"}},
          {"LoHa that claims terabytes",
           {{kQ + ".hada_w1_a", filled({1 << 20, 1})},
            {kQ + ".hada_w1_b", filled({1, 1 << 20})},
            {kQ + ".hada_w2_a", filled({1 << 20, 1})},
            {kQ + ".hada_w2_b", filled({1, 1 << 20})}},
           {"to_q", "1048576"}},
          {"LoKr of another width", lokr({2, 2}, {4, 4}), {"to_q", "reads 8"}},
          {"LoKr of another height", lokr({2, 2}, {5, 3}), {"to_q", "gives 10"}},
          {"LoKr that claims terabytes", lokr({1 << 20, 1}, {1 << 20, 1}), {"to_q"}},
          {"LoKr without a factor", {{kQ + ".lokr_w1", filled({2, 2})}}, {"lokr_w1", "lokr_w2_a"}},
          {"LoKr with a factor twice",
           with(lokr({2, 2}, {4, 3}), kQ + ".lokr_w1_a", filled({2, 2})),
           {"lokr_w1_a", "no use"}},
          {"LoKr with NaN",
           with(lokr({2, 2}, {4, 3}), kQ + ".lokr_w2", filled({4, 3}, kNan)),
           {"lokr_w2", "NaN"}},
          {"LoRA and LoHa of one layer",
           with(sound(), kQ + ".hada_w1_a", filled({8, 2})),
           {"to_q", "two kinds"}}};
}

std::vector<Broken> names_without_a_layer() {
  const std::string other = "transformer.transformer_blocks.9.attn.to_q";
  const auto beside = [](const std::string& name, const Shape& shape) {
    return with(sound(), name, filled(shape));
  };
  return {
      {"a block that the model lacks",
       beside(other + ".lora_A.weight", {2, 6}),
       {"transformer_blocks.9"}},
      {"an unknown layer", beside("transformer.to_quack.lora_A.weight", {2, 6}), {"to_quack"}},
      {"an unknown part of a layer", beside(kQ + ".lora_C.weight", {2, 6}), {"lora_C"}},
      {"a bias", beside(kQ + ".diff_b", {8}), {"diff_b"}},
      {"a bias of peft", beside(kQ + ".lora_B.bias", {8}), {"lora_B.bias"}},
      {"a whole difference", beside(kQ + ".diff", {8, 6}), {"to_q.diff"}},
      {"a convolution in three parts", beside(kQ + ".lora_mid.weight", {2, 2, 3, 3}), {"lora_mid"}},
      {"a norm",
       beside("transformer.transformer_blocks.0.attn.norm_q.lora_A.weight", {1, 6}),
       {"norm_q"}},
      {"no tensors", {}, {"without tensors"}},
      {"weights of a model",
       {{"transformer_blocks.0.attn.to_q.weight", filled({8, 6})}},
       {"to_q.weight"}},
      {"another model: SD3",
       {{"lora_unet_joint_blocks_0_x_block_attn_qkv.alpha", filled({})}},
       {"Stable Diffusion 3"}},
      {"another model: SDXL",
       {{"lora_unet_down_blocks_1_attentions_0_proj_in.alpha", filled({})}},
       {"Stable Diffusion 1, 2 or XL"}},
      {"another model: Z-Image",
       {{"diffusion_model.noise_refiner.0.attention.qkv.lora_A.weight", filled({2, 6})}},
       {"Z-Image"}},
      {"a text encoder that the model lacks",
       beside("lora_te9_text_model_encoder_layers_0_mlp_fc1.alpha", {}),
       {"lora_te9"}},
      {"a layer in two namings of peft",
       beside("base_model.model.transformer_blocks.0.attn.to_q.lora_A.weight", {2, 6}),
       {"to_q"}},
      {"a part of a layer twice", beside(kQ + ".lora_down.weight", {2, 6}), {"same part"}},
      {"a layer twice, once in a fused one",
       with(with(sound(), kKohya + ".lora_down.weight", filled({2, 6})), kKohya + ".lora_up.weight",
            filled({24, 2})),
       {"attn.to_", "changes the layer"}}};
}

class BrokenAdapters : public testing::Test {
 protected:
  std::string refusal(double strength = 1) {
    try {
      read_adapter(path_, strength, names());
    } catch (const Error& e) {
      const std::string said = e.what();
      EXPECT_EQ(said.find('\n'), std::string::npos);
      EXPECT_NE(said.find(path_), std::string::npos) << said;
      return said;
    }
    return "";
  }
  void check(const std::vector<Broken>& all) {
    for (const Broken& one : all) {
      SCOPED_TRACE(one.why);
      write_safetensors(path_, one.tensors, one.metadata);
      const std::string said = refusal();
      EXPECT_NE(said, "") << "was taken";
      for (const char* name : one.named) EXPECT_NE(said.find(name), std::string::npos) << said;
    }
  }
  void write(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }
  void TearDown() override { std::filesystem::remove(path_); }
  const std::string path_ =
      (std::filesystem::temp_directory_path() / "tessera_broken_adapter_test.safetensors").string();
};

std::string with_length(const std::string& header) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i) & 255);
  return bytes + header;
}

}  // namespace

TEST_F(BrokenAdapters, TheSoundOnesAreTaken) {
  for (const Tensors& tensors : {sound(), loha(), lokr({2, 2}, {4, 3})}) {
    write_safetensors(path_, tensors, {});
    EXPECT_EQ(refusal(), "");
  }
}

TEST_F(BrokenAdapters, PairsThatDoNotFit) { check(pairs_that_do_not_fit()); }
TEST_F(BrokenAdapters, ScalesAndSettings) { check(scales_and_settings()); }
TEST_F(BrokenAdapters, Products) { check(products()); }
TEST_F(BrokenAdapters, NamesWithoutALayer) { check(names_without_a_layer()); }

TEST_F(BrokenAdapters, DamagedFiles) {
  write_safetensors(path_, sound(), {});
  const auto size = std::filesystem::file_size(path_);
  std::filesystem::resize_file(path_, size / 4);
  EXPECT_NE(refusal(), "") << "a quarter";
  write_safetensors(path_, sound(), {});
  std::filesystem::resize_file(path_, size - 1);
  EXPECT_NE(refusal(), "") << "a byte short";
  write("");
  EXPECT_NE(refusal(), "") << "empty";
  write("not an adapter at all");
  EXPECT_NE(refusal(), "") << "text";
  write(std::string(7, '\x7f') + std::string("\x7f{}"));
  EXPECT_NE(refusal(), "") << "a header of exabytes";
  write(with_length(R"({"a.lora_A.weight": {"dtype": "F32", "shape": [2684354560], )"
                    R"("data_offsets": [0, 10737418240]}})"));
  EXPECT_NE(refusal(), "") << "ten gigabytes";
  write(with_length(R"({"a.lora_A.weight": {"dtype": "F32", "shape": [4611686018427387904, 4], )"
                    R"("data_offsets": [0, 0]}})"));
  EXPECT_NE(refusal(), "") << "a size that overflows";
}

TEST_F(BrokenAdapters, StrengthsThatAreNone) {
  write_safetensors(path_, sound(), {});
  for (const double strength : {double(kNan), double(kInf), 1e6}) EXPECT_NE(refusal(strength), "");
}

}  // namespace tessera::load
