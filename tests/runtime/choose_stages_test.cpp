#include "runtime/choose_stages.h"

#include <gtest/gtest.h>

#include <numeric>

#include "runtime/streamed.h"

namespace tessera::runtime {
namespace {

models::PipelineSpec flux() {
  const char* const config =
      R"({"num_attention_heads": 24, "attention_head_dim": 128, "num_layers": 19,
          "num_single_layers": 38, "in_channels": 64, "joint_attention_dim": 4096,
          "pooled_projection_dim": 768, "axes_dims_rope": [16, 56, 56], "guidance_embeds": true})";
  return models::pipeline_of("FluxTransformer2DModel", {base::Json::parse(config), "config.json"});
}

// Double-stream and single-stream blocks have equal width and 24 and 24 matrix rows per token.
TEST(ChooseStages, BalancesBlocksByTheirFlopsAndBytes) {
  const std::vector<double> flops = block_flops(flux(), nn::DType::bf16);
  ASSERT_EQ(flops.size(), 57u);
  for (size_t b = 1; b < 19; ++b) EXPECT_NEAR(flops[b] / flops[1], 1, 0.02);
  for (size_t b = 20; b < 57; ++b) EXPECT_EQ(flops[b], flops[20]);
  const double all = std::accumulate(flops.begin(), flops.end(), 0.0);
  const std::vector<int64_t> bytes = part_weights(flux(), nn::DType::bf16).blocks;
  const int64_t whole = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
  EXPECT_NEAR(double(bytes[0]) / double(bytes[20]), 2.4, 0.01);
  ModelState state;
  state.spec = flux();
  for (const int stages : {2, 3, 4, 8}) {
    state.options.plan = parse_plan("pipefusion=" + std::to_string(stages));
    choose_stages(state);
    const std::vector<int>& chosen = state.options.plan.stages;
    ASSERT_EQ(std::ssize(chosen), stages);
    EXPECT_EQ(std::accumulate(chosen.begin(), chosen.end(), 0), 57);
    auto at = flops.begin();
    auto weighs = bytes.begin();
    for (const int count : chosen) {
      EXPECT_LE(std::accumulate(at, at + count, 0.0), 1.15 * (all / stages + flops[20]));
      EXPECT_LE(std::accumulate(weighs, weighs + count, int64_t{0}), 1.3 * double(whole) / stages);
      at += count;
      weighs += count;
    }
  }
}

TEST(ChooseStages, AModelWithoutPositionsForItsTrainedSizeIsAskedForLess) {
  const char* const config =
      R"({"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 3, "in_channels": 4,
          "out_channels": 4, "caption_projection_dim": 16, "joint_attention_dim": 10,
          "pooled_projection_dim": 6, "pos_embed_max_size": 8, "sample_size": 128,
          "dual_attention_layers": [0]})";
  const auto flops = block_flops(
      models::pipeline_of("SD3Transformer2DModel", {base::Json::parse(config), "config.json"}),
      nn::DType::bf16);
  ASSERT_EQ(flops.size(), 3u);
  EXPECT_GT(flops[0], flops[1]) << "it attends twice";
}

TEST(ChooseStages, KeepsWhatAPlanSays) {
  ModelState state;
  state.spec = flux();
  for (const char* text : {"pipefusion=2,stages=19+38", "cfg=2", "pipefusion=58"}) {
    state.options.plan = parse_plan(text);
    choose_stages(state);
    EXPECT_EQ(to_string(state.options.plan), text);
  }
}

}  // namespace
}  // namespace tessera::runtime
