// Whole models under moe=fused on ranks as threads with an emulated GPU in common, and on ranks as
// if they were processes with a GPU each.
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "cluster/processes.h"
#include "comm/threads/launch.h"
#include "fused/cuda/emulated_ranks.h"
#include "fused/shared_pages.h"
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

GenerateResult generated(const RunOptions& run, int steps) {
  GenerateRequest request;
  request.classes = {"1", "3"};
  request.steps = steps;
  request.guidance = 1.5f;
  request.decode = false;
  return Model::open(std::string(TESSERA_TEST_DATA) + "/moe/dit_moe_flash/model", run)
      .generate(request);
}

GenerateResult generated(const std::string& plan, Precision precision, int steps) {
  return generated(on_gpu(plan, precision), steps);
}

// Latents and numbers of moe=bulk, in `most` launches; stale results without a reader need no
// launch.
void expect_bulk(const GenerateResult& fused, const GenerateResult& bulk, const std::string& plan,
                 int64_t most) {
  EXPECT_EQ(fused.latents, bulk.latents) << plan;
  const int64_t launches = fused.report.launches.at("fused experts");
  EXPECT_LE(launches, most) << plan;
  EXPECT_TRUE(launches == most || plan.find("schedule") != std::string::npos) << plan;
  EXPECT_FALSE(fused.report.launches.contains("experts")) << plan;
  EXPECT_FALSE(bulk.report.launches.contains("fused experts")) << plan;
  EXPECT_GT(bulk.report.launches.at("experts"), most) << plan;
  EXPECT_GT(fused.report.incast.bound, fused.report.incast.most) << plan;
  EXPECT_GT(fused.report.incast.most, 0) << plan;
  EXPECT_EQ(fused.report.expert_load, bulk.report.expert_load) << plan;
  EXPECT_EQ(fused.report.flops, bulk.report.flops) << plan;
  ASSERT_EQ(fused.report.layers.size(), bulk.report.layers.size());
  for (size_t l = 0; l < bulk.report.layers.size(); ++l)
    EXPECT_EQ(fused.report.layers[l].assignments, bulk.report.layers[l].assignments) << plan;
}

// In one launch a layer and step for all ranks.
void expect_bulk(const std::string& plan, Precision precision, int steps) {
  expect_bulk(generated(plan + ",moe=fused", precision, steps), generated(plan, precision, steps),
              plan, kLayers * steps);
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

#if !defined(TESSERA_ON_GPU)
// The result of the first rank.
GenerateResult apart(const std::string& plan, Precision precision, int steps) {
  GenerateResult first;
  const int ranks = parse_plan(plan).world();
  comm::threads::run(ranks, std::chrono::seconds(60), [&](comm::Communicator& world) {
    auto state = std::make_unique<Processes::State>();
    state->rank = state->index_here = world.rank();
    state->ranks = state->on_this_machine = ranks;
    state->world = &world;
    std::vector<int> all(static_cast<size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    state->gpus = world.group(all);
    const Processes processes(std::move(state));
    RunOptions run = on_gpu(plan, precision);
    run.processes = &processes;
    GenerateResult result = generated(run, steps);
    if (world.rank() == 0) first = std::move(result);
  });
  return first;
}

// In one launch a layer, step and rank, with rows in buffers of one another.
TEST(RanksWithAGpuEach, GiveTheBitsOfTheBulkExchange) {
  const EmulatedExperts emulated(false);
  const GpuOfEachRank gpus;
  constexpr int kSteps = 2;
  for (const auto& [plan, precision] :
       {std::pair{"expert=2", Precision::f32}, {"expert=3,placement=strided", Precision::bf16}}) {
    const GenerateResult fused = apart(plan + std::string(",moe=fused"), precision, kSteps);
    expect_bulk(fused, apart(plan, precision, kSteps), plan,
                int64_t{kLayers} * kSteps * parse_plan(plan).world());
  }
}

TEST(RanksWithAGpuEach, GiveThemUnderStaleSchedules) {
  const EmulatedExperts emulated(false);
  const GpuOfEachRank gpus;
  const std::string plan = "expert=2,schedule=interweaved";
  expect_bulk(apart(plan + ",moe=fused", Precision::bf16, 4), apart(plan, Precision::bf16, 4), plan,
              int64_t{kLayers} * 4 * 2);
}

TEST(RanksWithAGpuEach, EndTogetherIfOneMapsNoMemory) {
  const EmulatedExperts emulated(false);
  const GpuOfEachRank gpus([](int rank) {
    SharedPages::Faults faults;
    if (rank == 1) faults.mappings = 0;
    return faults;
  });
  try {
    (void)apart("expert=2,moe=fused", Precision::f32, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("moe=fused, rank 1: no mapping"), std::string::npos)
        << error.what();
  }
}
#endif

}  // namespace
}  // namespace tessera::fused
