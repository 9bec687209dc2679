// Whole models under moe=fused on ranks as threads with an emulated GPU in common.
#include <gtest/gtest.h>

#include "fused/cuda/emulated_ranks.h"
#include "tessera/engine.h"
#include "test_paths.h"

namespace tessera::fused {
namespace {

constexpr int kLayers = 3;

RunOptions on_gpu(const std::string& plan, Precision precision) {
  RunOptions run;
  run.precision = precision;
  run.threads = 2;
  run.device = parse_device("cuda");
  run.plan = parse_plan(plan);
  return run;
}

GenerateResult generated(const std::string& plan, Precision precision, int steps) {
  GenerateRequest request;
  request.classes = {"1", "3"};
  request.steps = steps;
  request.guidance = 1.5f;
  request.decode = false;
  return Model::open(std::string(TESSERA_TEST_DATA) + "/moe/dit_moe_flash/model",
                     on_gpu(plan, precision))
      .generate(request);
}

// Latents and numbers of moe=bulk, in one launch a layer and step; stale results without a reader
// need no launch.
void expect_bulk(const std::string& plan, Precision precision, int steps) {
  const GenerateResult bulk = generated(plan, precision, steps);
  const GenerateResult fused = generated(plan + ",moe=fused", precision, steps);
  EXPECT_EQ(fused.latents, bulk.latents) << plan;
  const int64_t launches = fused.report.launches.at("fused experts");
  EXPECT_LE(launches, kLayers * steps) << plan;
  EXPECT_TRUE(launches == kLayers * steps || plan.find("schedule") != std::string::npos) << plan;
  EXPECT_FALSE(fused.report.launches.contains("experts")) << plan;
  EXPECT_FALSE(bulk.report.launches.contains("fused experts")) << plan;
  EXPECT_GT(bulk.report.launches.at("experts"), kLayers * steps) << plan;
  EXPECT_GT(fused.report.incast.bound, fused.report.incast.most) << plan;
  EXPECT_GT(fused.report.incast.most, 0) << plan;
  EXPECT_EQ(fused.report.expert_load, bulk.report.expert_load) << plan;
  EXPECT_EQ(fused.report.flops, bulk.report.flops) << plan;
  ASSERT_EQ(fused.report.layers.size(), bulk.report.layers.size());
  for (size_t l = 0; l < bulk.report.layers.size(); ++l)
    EXPECT_EQ(fused.report.layers[l].assignments, bulk.report.layers[l].assignments) << plan;
}

TEST(RanksOfOneGpu, GiveTheBitsOfTheBulkExchange) {
  const EmulatedExperts emulated(false);
  for (const char* plan : {"expert=2", "expert=4,placement=strided"})
    for (const Precision precision : {Precision::f32, Precision::bf16})
      expect_bulk(plan, precision, 2);
}

TEST(RanksOfOneGpu, GiveThemOfInt8) {
  const EmulatedExperts emulated(false);
  expect_bulk("expert=3", Precision::int8, 1);
}

// Emulated warpgroups are slow.
TEST(RanksOfOneGpu, GiveThemByWarpgroups) {
  const EmulatedExperts emulated(true);
  expect_bulk("expert=2", Precision::bf16, 1);
}

TEST(RanksOfOneGpu, GiveThemUnderStaleSchedules) {
  const EmulatedExperts emulated(false);
  for (const char* schedule : {"displaced", "interweaved,conditional=low"})
    expect_bulk(std::string("expert=2,schedule=") + schedule, Precision::bf16, 4);
}

TEST(RanksOfOneGpu, AreRefusedWithThePlanBeyondEight) {
  const EmulatedExperts emulated(false);
  try {
    (void)generated("expert=16,moe=fused", Precision::f32, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::plan);
    EXPECT_NE(std::string(error.what())
                  .find("MoE layer 0 has 16 ranks; at most 8 share a launch; use moe=bulk"),
              std::string::npos)
        << error.what();
  }
}

TEST(RanksOfOneGpu, DecodeTheSameWords) {
  const EmulatedExperts emulated(false);
  const auto words = [](const std::string& plan) {
    CompleteRequest q;
    q.prompt_ids = {{5, 17, 3, 8}, {4, 4, 2}};
    q.max_tokens = 8;
    q.block = 4;
    q.stop_at_eos = StopAtEos::none;
    std::vector<std::vector<int32_t>> ids;
    for (const auto& one : Model::open(std::string(TESSERA_TEST_DATA) + "/moe/llada_moe/model",
                                       on_gpu(plan, Precision::f32))
                               .complete(q)
                               .completions)
      ids.push_back(one.ids);
    return ids;
  };
  EXPECT_EQ(words("expert=2,moe=fused"), words("expert=2"));
}

}  // namespace
}  // namespace tessera::fused
