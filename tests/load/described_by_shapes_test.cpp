#include "load/described_by_shapes.h"

#include <gtest/gtest.h>

#include "scratch_folder.h"

namespace tessera::load {
namespace {

using tensor::DType;
using tensor::Tensor;

TensorSet written(const ScratchFolder& folder,
                  const std::map<std::string, std::vector<int64_t>>& shapes) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, sizes] : shapes)
    tensors.emplace(name, Tensor::zeros(tensor::Shape(sizes), DType::u8));
  write_safetensors(folder.path("f"), tensors);
  return TensorSet({SafetensorsFile(folder.path("f"))});
}

std::map<std::string, std::vector<int64_t>> flux(int64_t head) {
  std::map<std::string, std::vector<int64_t>> shapes = {
      {"x_embedder.weight", {256, 64}},
      {"context_embedder.weight", {256, 40}},
      {"time_text_embed.text_embedder.linear_1.weight", {256, 24}},
      {"time_text_embed.guidance_embedder.linear_1.weight", {256, 256}}};
  for (const char* n : {"0", "1", "10"})
    shapes["single_transformer_blocks." + std::string(n) + ".attn.norm_q.weight"] = {head};
  shapes["transformer_blocks.0.attn.norm_q.weight"] = {head};
  shapes["transformer_blocks.0.ff.net.0.proj.weight"] = {1, 1};
  return shapes;
}

TEST(DescribedByShapes, Flux) {
  const ScratchFolder folder;
  const base::Json config =
      described_by_shapes("FluxTransformer2DModel", written(folder, flux(128)), "f");
  EXPECT_EQ(config, base::Json({{"_class_name", "FluxTransformer2DModel"},
                                {"num_layers", 1},
                                {"num_single_layers", 3},
                                {"num_attention_heads", 2},
                                {"attention_head_dim", 128},
                                {"in_channels", 64},
                                {"joint_attention_dim", 40},
                                {"pooled_projection_dim", 24},
                                {"guidance_embeds", true},
                                {"axes_dims_rope", {16, 56, 56}}}));
}

TEST(DescribedByShapes, Flux2) {
  const ScratchFolder folder;
  const base::Json config = described_by_shapes(
      "Flux2Transformer2DModel",
      written(folder, {{"x_embedder.weight", {256, 128}},
                       {"context_embedder.weight", {256, 40}},
                       {"time_guidance_embed.timestep_embedder.linear_1.weight", {256, 64}},
                       {"transformer_blocks.0.attn.norm_q.weight", {128}},
                       {"single_transformer_blocks.0.attn.norm_q.weight", {128}},
                       {"single_transformer_blocks.1.attn.norm_q.weight", {128}},
                       {"single_transformer_blocks.0.attn.to_out.weight", {256, 1024}}}),
      "f");
  EXPECT_EQ(config, base::Json({{"_class_name", "Flux2Transformer2DModel"},
                                {"num_layers", 1},
                                {"num_single_layers", 2},
                                {"num_attention_heads", 2},
                                {"attention_head_dim", 128},
                                {"in_channels", 128},
                                {"joint_attention_dim", 40},
                                {"timestep_guidance_channels", 64},
                                {"mlp_ratio", 3.0},
                                {"guidance_embeds", false},
                                {"axes_dims_rope", {32, 32, 32, 32}},
                                {"rope_theta", 2000}}));
}

TEST(DescribedByShapes, StableDiffusion3) {
  const ScratchFolder folder;
  const base::Json config = described_by_shapes(
      "SD3Transformer2DModel",
      written(folder, {{"pos_embed.proj.weight", {128, 16, 2, 2}},
                       {"pos_embed.pos_embed", {1, 36, 128}},
                       {"proj_out.weight", {64, 128}},
                       {"context_embedder.weight", {128, 40}},
                       {"time_text_embed.text_embedder.linear_1.weight", {128, 24}},
                       {"transformer_blocks.0.attn.norm_q.weight", {64}},
                       {"transformer_blocks.0.attn.to_q.weight", {128, 128}},
                       {"transformer_blocks.0.attn2.to_q.weight", {128, 128}},
                       {"transformer_blocks.1.attn.to_q.weight", {128, 128}}}),
      "f");
  EXPECT_EQ(config.at("num_layers"), 2);
  EXPECT_EQ(config.at("num_attention_heads"), 2);
  EXPECT_EQ(config.at("out_channels"), 16);
  EXPECT_EQ(config.at("pos_embed_max_size"), 6);
  EXPECT_EQ(config.at("qk_norm"), "rms_norm");
  EXPECT_EQ(config.at("dual_attention_layers"), base::Json({0}));
}

TEST(DescribedByShapes, SaysWhatTheShapesDoNotTell) {
  const ScratchFolder folder;
  expect_says(model_error([&] {
                described_by_shapes("FluxTransformer2DModel", written(folder, flux(24)), "f.gguf");
              }),
              "f.gguf: its heads have 24 channels");
  expect_says(model_error([&] {
                described_by_shapes("HunyuanDiT2DModel", written(folder, flux(128)), "f.gguf");
              }),
              "it is for a HunyuanDiT2DModel; the folder holds no transformer/config.json");
}

}  // namespace
}  // namespace tessera::load
