#include "load/name_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "gguf_image.h"
#include "load/gguf.h"
#include "load/name_tables.h"
#include "load/tensor_set.h"
#include "scratch_folder.h"
#include "test_paths.h"

namespace tessera::load {
namespace {

const std::string kDiffusers = TESSERA_TEST_DATA "/diffusers/";

// A model with weights in the test data.
struct Case {
  const char* model;
  const char* type;
};

// Each tensor of the model has a name in the file, which maps back to the model's name.
TEST(NameMap, EveryTensorThereAndBack) {
  const Case cases[] = {
      {"flux_dev/model/transformer", "FluxTransformer2DModel"},
      {"sd35/model/transformer", "SD3Transformer2DModel"},
      {"pixart_alpha/model/transformer", "PixArtTransformer2DModel"},
      {"hunyuandit_v11/model/transformer", "HunyuanDiT2DModel"},
      {"flux2_klein_base/model/transformer", "Flux2Transformer2DModel"},
      {"flux_dev/model/vae", "AutoencoderKL"},
      {"flux2_klein_base/model/vae", "AutoencoderKLFlux2"},
      {"cogvideox_2b/model/text_encoder", "T5EncoderModel"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.model);
    const NameTable& table = *name_table_of(c.type);
    const TensorSet set = open_component(kDiffusers + c.model);
    // With all numbers of the model's blocks known, L and R are, too: twice, to see the file's own.
    std::vector<std::string> theirs;
    const NameMap blank(table, {});
    for (const std::string& name : set.names()) {
      const std::string other = blank.file_name(name);
      theirs.push_back(other.empty() ? name : other);
    }
    const NameMap map(table, theirs);
    EXPECT_TRUE(map.applies());
    std::map<std::string, std::vector<std::string>> parts;  // by the file's name
    for (const std::string& name : set.names()) {
      const std::string other = map.file_name(name);
      parts[other.empty() ? name : other].push_back(name);
    }
    for (const auto& [other, names] : parts) {
      TensorEntry entry{"F32", {420, 4}, 0, 420 * 4 * 4};
      const auto found = map.model_tensors(other, entry, "file");
      if (found.empty()) {
        EXPECT_EQ(names, std::vector<std::string>{other});
        continue;
      }
      for (const std::string& name : names)
        EXPECT_TRUE(found.contains(name)) << other << " " << name;
      EXPECT_EQ(found.size(), names.size()) << other;
    }
    // Nor do the model's own names look like the file's.
    EXPECT_FALSE(NameMap(table, set.names()).applies());
  }
}

std::vector<float> counted(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

TensorFile renamed(const GgufImage& image, const char* type) {
  const auto bytes = std::make_shared<const std::string>(image.bytes());
  const GgufFile file(*bytes, "test.gguf", bytes);
  std::vector<std::string> names;
  for (const auto& [name, entry] : file.entries()) names.push_back(name);
  return with_model_names(file, NameMap(*name_table_of(type), names));
}

TEST(NameMap, CutsRowsByTheirShares) {
  const TensorFile file = renamed(GgufImage()
                                      .floats("single_blocks.0.linear1.weight", {7, 1}, counted(7))
                                      .floats("single_blocks.0.linear1.bias", {14}, counted(14)),
                                  "FluxTransformer2DModel");
  const std::string block = "single_transformer_blocks.0.";
  EXPECT_EQ(file.get(block + "attn.to_q.weight").to_floats(), (std::vector<float>{0}));
  EXPECT_EQ(file.get(block + "attn.to_v.bias").to_floats(), (std::vector<float>{4, 5}));
  EXPECT_EQ(file.get(block + "proj_mlp.weight").to_floats(), (std::vector<float>{3, 4, 5, 6}));
  EXPECT_EQ(file.entry(block + "proj_mlp.bias").sizes, (std::vector<int64_t>{8}));
}

TEST(NameMap, TakesFlux2InBothSpellingsOfItsNorms) {
  const std::string block = "double_blocks.0.img_attn.";
  const TensorFile file =
      renamed(GgufImage()
                  .floats("double_stream_modulation_img.lin.weight", {6, 1}, counted(6))
                  .floats(block + "qkv.weight", {3, 1}, counted(3))
                  .floats(block + "norm.query_norm.scale", {2}, {1, 2})
                  .floats(block + "norm.key_norm.weight", {2}, {3, 4})
                  .floats("single_blocks.0.linear1.weight", {9, 1}, counted(9))
                  .floats("final_layer.adaLN_modulation.1.weight", {4, 1}, counted(4)),
              "Flux2Transformer2DModel");
  const std::string ours = "transformer_blocks.0.attn.";
  EXPECT_EQ(file.get(ours + "to_k.weight").to_floats(), (std::vector<float>{1}));
  EXPECT_EQ(file.get(ours + "norm_q.weight").to_floats(), (std::vector<float>{1, 2}));
  EXPECT_EQ(file.get(ours + "norm_k.weight").to_floats(), (std::vector<float>{3, 4}));
  EXPECT_EQ(file.get("single_transformer_blocks.0.attn.to_qkv_mlp_proj.weight").to_floats(),
            counted(9));
  EXPECT_EQ(file.get("norm_out.linear.weight").to_floats(), (std::vector<float>{2, 3, 0, 1}));
}

TEST(NameMap, SwapsHalvesInTheLastBlockAlone) {
  const std::string name = ".context_block.adaLN_modulation.1.bias";
  const TensorFile file =
      renamed(GgufImage()
                  .floats("joint_blocks.9" + name, {6}, counted(6))
                  .floats("joint_blocks.10" + name, {2}, counted(2))
                  .floats("final_layer.adaLN_modulation.1.bias", {4}, counted(4)),
              "SD3Transformer2DModel");
  EXPECT_EQ(file.get("transformer_blocks.9.norm1_context.linear.bias").to_floats(), counted(6));
  EXPECT_EQ(file.get("transformer_blocks.10.norm1_context.linear.bias").to_floats(),
            (std::vector<float>{1, 0}));
  EXPECT_EQ(file.get("norm_out.linear.bias").to_floats(), (std::vector<float>{2, 3, 0, 1}));
}

TEST(NameMap, CountsTheDecoderFromItsOtherEnd) {
  const TensorFile file =
      renamed(GgufImage()
                  .floats("decoder.up.3.block.2.conv1.bias", {1}, {3})
                  .floats("decoder.up.0.block.0.norm2.bias", {1}, {0})
                  .floats("decoder.mid.attn_1.q.weight", {2, 2, 1, 1}, counted(4))
                  .floats("decoder.up.1.block.0.nin_shortcut.weight", {2, 2, 1, 1}, counted(4)),
              "AutoencoderKL");
  EXPECT_TRUE(file.has("decoder.up_blocks.0.resnets.2.conv1.bias"));
  EXPECT_TRUE(file.has("decoder.up_blocks.3.resnets.0.norm2.bias"));
  EXPECT_EQ(file.entry("decoder.mid_block.attentions.0.to_q.weight").sizes.size(), 2u);
  EXPECT_EQ(file.entry("decoder.up_blocks.2.resnets.0.conv_shortcut.weight").sizes.size(), 4u);
}

TEST(NameMap, TakesExpertsApart) {
  const std::string block = "blk.3.ffn_", ours = "model.layers.3.mlp.experts.";
  std::string q8(static_cast<size_t>(2 * 3 * 34), '\0');  // [2, 3, 32] in Q8_0
  for (size_t row = 0; row < 6; ++row) {
    q8[row * 34 + 1] = 0x3c;  // a scale of 1
    q8[row * 34 + 2] = static_cast<char>(row + 1);
  }
  const TensorFile file = renamed(GgufImage()
                                      .tensor(block + "gate_exps.weight", {2, 3, 32}, 8, q8)
                                      .floats(block + "down_exps.weight", {2, 1, 2}, counted(4)),
                                  "LLaDAMoEModelLM");
  EXPECT_EQ(file.entries().size(), 4u);
  EXPECT_EQ(file.get(ours + "1.down_proj.weight").to_floats(), (std::vector<float>{2, 3}));
  const std::string gate = ours + "1.gate_proj.weight";
  EXPECT_EQ(file.entry(gate).sizes, (std::vector<int64_t>{3, 32}));
  const std::vector<float> values = file.get(gate).to_floats();
  EXPECT_EQ(values[0], 4);
  EXPECT_EQ(values[64], 6);
  const NameMap map(*name_table_of("LLaDAMoEModelLM"), {});
  EXPECT_EQ(map.file_name(gate), block + "gate_exps.weight");
  expect_says(model_error([&] {
                renamed(GgufImage().floats(block + "gate_exps.weight", {4}, counted(4)),
                        "LLaDAMoEModelLM");
              }),
              "has the shape [4]; expected [experts, rows, columns]");
  expect_says(model_error([&] {
                renamed(GgufImage().floats(block + "gate_up_exps.weight", {1, 3, 2}, counted(6)),
                        "diffusion_gemma");
              }),
              "a multiple of 2 rows");
}

TEST(NameMap, LeavesOutWhatNothingReads) {
  const TensorFile file = renamed(GgufImage()
                                      .floats("norm_final.weight", {1}, {1})
                                      .floats("layers.0.attention.out.weight", {1, 1}, {2}),
                                  "ZImageTransformer2DModel");
  EXPECT_EQ(file.entries().size(), 1u);
  EXPECT_TRUE(file.has("layers.0.attention.to_out.0.weight"));
}

TEST(NameMap, RefusesRowsThatCannotBeCut) {
  expect_says(
      model_error([] {
        renamed(GgufImage().floats("layers.0.attention.qkv.weight", {4, 1}, counted(4)),
                "ZImageTransformer2DModel");
      }),
      "'layers.0.attention.qkv.weight' has the shape [4, 1]; expected a multiple of 3 rows");
  expect_says(model_error([] {
                renamed(GgufImage()
                            .floats("norm_final.weight", {1}, {1})
                            .floats("x_embedder.bias", {1}, {1})
                            .floats("layers.0.attention.out.weight", {1, 1}, {1})
                            .floats("all_x_embedder.2-1.bias", {1}, {1}),
                        "ZImageTransformer2DModel");
              }),
              "'all_x_embedder.2-1.bias' is there by two names");
}

}  // namespace
}  // namespace tessera::load
