#include <gtest/gtest.h>

#include "device/leg.h"
#include "device/on_gpu.h"

namespace tessera::device {
namespace {

// The whole model where the host may not read, against the same kernels on host memory.
void expect_equal(const char* type, const char* config, int64_t text, int64_t frames = 0,
                  const std::map<std::string, Tensor>& given = {}, bool chooses = false) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TinyTransformer here(Device::cpu, type, config, dtype);
    nn::Conditioning c = here.conditioning(text);
    for (const auto& [name, x] : given) c.tensors[name] = x;
    const nn::TokenLayout layout = here.spec.layout(4, 6, frames);
    const std::vector<float> want = here(c, layout).to_floats();
    const std::vector<float> run = here.denoised(c, layout, 5).to_floats();
    const Gpu gpu;
    const TinyTransformer there(Device::cuda, type, config, dtype);
    const auto rows = static_cast<size_t>(2 * layout.tokens());
    const auto expect = [&](const std::vector<float>& got, const std::vector<float>& right) {
      chooses ? expect_same_choices(got, right, rows, dtype) : expect_same(got, right, dtype);
    };
    expect(there(c, layout).to_floats(), want);
    gpu.expect_kernels(20);
    expect(there.denoised(c, layout, 5).to_floats(), run);
    gpu.expect_replays(4);
  }
}

TEST(TransformersOnGpu, DitMoe) {
  expect_equal("DiTMoE",
               R"({"hidden_size": 32, "depth": 2, "num_heads": 2, "patch_size": 2, "in_channels": 4,
  "input_size": 8, "mlp_ratio": 4, "num_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 2,
  "norm_topk_prob": false, "learn_sigma": true, "num_classes": 5, "attention": "flash", "qk_norm": true,
  "frequency_embedding_size": 64})",
               0, 0, {{"y", Tensor::from(std::vector<int32_t>{1, 5}, {2})}}, true);
}

TEST(TransformersOnGpu, Sd3) {
  expect_equal(
      "SD3Transformer2DModel",
      R"({"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 3, "in_channels": 4,
  "out_channels": 4, "caption_projection_dim": 16, "joint_attention_dim": 10, "pooled_projection_dim": 6,
  "pos_embed_max_size": 8, "qk_norm": "rms_norm", "dual_attention_layers": [0]})",
      5);
}

TEST(TransformersOnGpu, Pixart) {
  const char* const config =
      R"({"num_attention_heads": 3, "attention_head_dim": 8, "num_layers": 2, "sample_size": 128,
  "cross_attention_dim": 24, "caption_channels": 10})";
  expect_equal("PixArtTransformer2DModel", config, 6);
  const std::vector<int32_t> mask = {1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0};
  expect_equal("PixArtTransformer2DModel", config, 6, 0,
               {{"encoder_attention_mask", Tensor::from(std::span<const int32_t>(mask), {2, 6})}});
}

TEST(TransformersOnGpu, FluxWithHeadsThatAreNoWholeVectors) {
  expect_equal(
      "FluxTransformer2DModel",
      R"({"num_attention_heads": 2, "attention_head_dim": 12, "num_layers": 1, "num_single_layers": 2,
  "in_channels": 16, "joint_attention_dim": 10, "pooled_projection_dim": 6, "axes_dims_rope": [4, 4, 4],
  "guidance_embeds": true})",
      5);
}

TEST(TransformersOnGpu, HunyuanDit) {
  expect_equal(
      "HunyuanDiT2DModel",
      R"({"num_attention_heads": 2, "attention_head_dim": 12, "num_layers": 4, "in_channels": 4,
  "patch_size": 2, "cross_attention_dim": 10, "cross_attention_dim_t5": 16, "pooled_projection_dim": 6,
  "text_len": 3, "text_len_t5": 5})",
      0);
}

TEST(TransformersOnGpu, CogVideoXWithEitherKindOfPositions) {
  for (const char* rotary : {"true", "false"})
    expect_equal(
        "CogVideoXTransformer3DModel",
        (std::string(
             R"({"num_attention_heads": 2, "attention_head_dim": 16, "num_layers": 2, "in_channels": 4,
  "out_channels": 4, "time_embed_dim": 8, "text_embed_dim": 10, "use_rotary_positional_embeddings": )") +
         rotary + "}")
            .c_str(),
        5, 3);
}

}  // namespace
}  // namespace tessera::device
