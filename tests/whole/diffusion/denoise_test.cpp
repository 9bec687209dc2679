#include "diffusion/denoise.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "test_paths.h"
#include "whole/golden.h"

namespace tessera {
namespace {

using golden::Scratch;

struct Asked {
  std::string plan;
  Precision precision = Precision::f32;
  uint64_t seed = 3;
  std::vector<std::string> classes{"1", "0", "5", "2", "7"};  // odd: ranks get unequal shares
  float guidance = 1.5f;
  bool compare_steps = false;
};

std::vector<float> latents(const Asked& asked, Report* report = nullptr) {
  const Scratch scratch;
  RunOptions options = golden::options(asked.precision, 2);
  options.plan = parse_plan(asked.plan);
  Model model = Model::open(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", options);
  GenerateRequest request;
  request.classes = asked.classes;
  request.guidance = asked.guidance;
  request.steps = 6;
  request.seed = asked.seed;
  request.decode = false;
  request.compare_steps = asked.compare_steps;
  request.save_latents = scratch / "latents.safetensors";
  const GenerateResult result = model.generate(request);
  if (report) *report = result.report;
  return load::SafetensorsFile(request.save_latents).get("latents").to_floats();
}

TEST(Denoise, AnyNumberOfRanksGivesTheSameBits) {
  for (Precision precision : {Precision::f32, Precision::bf16}) {
    const auto alone = latents({"", precision});
    for (const char* plan :
         {"expert=2", "expert=3", "expert=4", "data=5", "data=3", "data=4,expert=2", "cfg=2",
          "ulysses=2", "data=2,cfg=2,ulysses=2,expert=2"})
      EXPECT_EQ(latents({plan, precision}), alone) << plan;
  }
}

TEST(Denoise, AnyPlacementOfExpertsGivesTheSameBits) {
  for (Precision precision : {Precision::f32, Precision::bf16}) {
    const auto alone = latents({"", precision});
    for (const char* plan :
         {"expert=2,placement=strided", "expert=3,placement=strided", "expert=2,placement=1+1+1+1",
          "expert=3,placement=2+0+2+0", "expert=4,placement=3+1+0+1,schedule=staggered-batch"})
      EXPECT_EQ(latents({plan, precision}), alone) << plan;
  }
  EXPECT_EQ(latents({"expert=3,placement=1+0+2+0,schedule=interweaved"}),
            latents({"schedule=interweaved"}));
}

TEST(Denoise, HalvesInTurnGiveTheBitsOfTheWholeBatch) {
  using Classes = std::vector<std::string>;
  for (Precision precision : {Precision::f32, Precision::bf16})
    for (const Classes& classes : {Classes{"1", "0", "5", "2", "7"}, Classes{"3"}})
      for (float guidance : {1.5f, 1.0f}) {  // 1: a single image is a single row
        const auto alone = latents({"", precision, 3, classes, guidance});
        for (const std::string ranks : {"", "expert=2,", "expert=3,", "expert=4,"}) {
          const std::string plan = ranks + "schedule=staggered-batch";
          EXPECT_EQ(latents({plan, precision, 3, classes, guidance}), alone)
              << plan << ", " << classes.size() << " images, guidance " << guidance;
        }
      }
  EXPECT_EQ(latents({"expert=2,schedule=staggered-batch,conditional=random"}),
            latents({"conditional=random"}));
}

TEST(Denoise, HalvesInTurnSendTheSameRowsInTwiceTheMessages) {
  Report whole, halves;
  latents({"expert=2", Precision::bf16}, &whole);
  latents({"expert=2,schedule=staggered-batch", Precision::bf16}, &halves);
  ASSERT_EQ(whole.layers.size(), halves.layers.size());
  for (size_t l = 0; l < whole.layers.size(); ++l) {
    EXPECT_EQ(halves.layers[l].assignments, whole.layers[l].assignments);
    EXPECT_EQ(halves.layers[l].tokens, whole.layers[l].tokens);
    EXPECT_EQ(halves.layers[l].oldest, 0);
  }
  for (const auto& [key, traffic] : whole.traffic) {
    if (key.first != "dispatch" && key.first != "combine") continue;
    EXPECT_EQ(halves.traffic.at(key).bytes, traffic.bytes);
    EXPECT_EQ(halves.traffic.at(key).messages, 2 * traffic.messages);
  }
  EXPECT_EQ(whole.kept_row_bytes, 0);
  EXPECT_GT(halves.kept_row_bytes, 0) << "a half's rows wait while the other half works";
}

TEST(Denoise, EveryScheduleGivesTheSameBitsOnAnyNumberOfRanks) {
  for (const std::string schedule :
       {"schedule=interweaved", "schedule=displaced",
        "schedule=displaced,scores=latest,sync-every=3", "schedule=displaced,warmup=2,cooldown=1",
        "schedule=adaptive,budget=40", "schedule=interweaved,sync=deep,conditional=low,warmup=2",
        "schedule=interweaved,sync=staggered,conditional=random,stride=3",
        "conditional=high,conditional-layers=all"})
    for (Precision precision : {Precision::f32, Precision::bf16}) {
      const auto alone = latents({schedule, precision});
      EXPECT_NE(alone, latents({"", precision})) << schedule << " leaves something stale";
      for (const char* ranks : {"expert=2,", "expert=3,", "data=4,expert=2,"})
        EXPECT_EQ(latents({ranks + schedule, precision}), alone) << ranks << schedule;
    }
}

TEST(Denoise, WarmUpOfAllStepsIsSynchronous) {
  const auto alone = latents({""});
  for (const char* plan :
       {"expert=2,schedule=interweaved,warmup=6", "expert=3,schedule=displaced,warmup=9",
        "expert=2,conditional=low,stride=4,warmup=6", "distrifusion=2,warmup=6",
        "distrifusion=3,warmup=6", "expert=2,schedule=displaced,warmup=2,cooldown=4",
        "data=2,distrifusion=2,expert=2,warmup=6,schedule=displaced"})
    EXPECT_EQ(latents({plan}), alone) << plan;
}

// They share packed weights and nothing else; each has two ranks.
TEST(Denoise, RequestsThatRunAtOnceGiveTheBitsOfOneAfterTheOther) {
  const std::vector<Asked> asked{{"expert=2,schedule=interweaved", Precision::f32, 3},
                                 {"expert=2", Precision::bf16, 4},
                                 {"expert=2,schedule=interweaved", Precision::f32, 5}};
  std::vector<std::vector<float>> alone, together(asked.size());
  for (const Asked& one : asked) alone.push_back(latents(one));
  for (int round = 0; round < 3; ++round) {
    std::barrier begin(static_cast<std::ptrdiff_t>(asked.size()));
    {
      std::vector<std::jthread> threads;
      for (size_t i = 0; i < asked.size(); ++i)
        threads.emplace_back([&, i] {
          begin.arrive_and_wait();
          together[i] = latents(asked[i]);
        });
    }
    EXPECT_EQ(together, alone);
  }
}

TEST(Denoise, RequestsDoNotSeeEachOther) {
  RunOptions options = golden::options(Precision::f32, 1);
  options.plan = parse_plan("expert=2,schedule=interweaved,conditional=low");
  Model model = Model::open(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", options);
  const Scratch scratch;
  const auto ask = [&](uint64_t seed) {
    GenerateRequest request;
    request.classes = {"1", "2"};
    request.steps = 4;
    request.seed = seed;
    request.decode = false;
    request.save_latents = scratch / "latents.safetensors";
    model.generate(request);
    return load::SafetensorsFile(request.save_latents).get("latents").to_floats();
  };
  const auto first = ask(1), second = ask(2);
  EXPECT_NE(first, second);
  EXPECT_EQ(ask(1), first);
}

TEST(Denoise, TheReportCountsBytesRowsAndAges) {
  Report report;
  latents({"expert=2,schedule=interweaved", Precision::bf16}, &report);
  EXPECT_EQ(report.ranks, 2);
  int64_t dispatched = 0, combined = 0;
  for (const auto& [key, traffic] : report.traffic) {
    if (key.first == "dispatch") dispatched += traffic.bytes;
    if (key.first == "combine") combined += traffic.bytes;
  }
  EXPECT_GT(combined, 0);
  EXPECT_EQ(combined % (2 * 32), 0) << "rows of 32 bf16";
  EXPECT_GT(dispatched, combined) << "the numbers of the experts travel with the rows";
  ASSERT_FALSE(report.layers.empty());
  for (const auto& layer : report.layers)
    EXPECT_EQ(layer.ages, (std::vector<int64_t>{2, 10}));  // two ranks
  EXPECT_GT(report.kept_row_bytes, 0);
}

TEST(Denoise, StepsAreComparedWithoutChangingThem) {
  Report report;
  EXPECT_EQ(latents({.plan = "", .compare_steps = true}, &report), latents({""}));
  ASSERT_FALSE(report.similarity.empty());
  EXPECT_EQ(report.similarity.size() % 5, 0u) << "six steps have five neighbours in each layer";
  for (const auto& s : report.similarity) {
    EXPECT_GE(s.step, 1);
    EXPECT_LE(s.step, 5);
    EXPECT_LE(s.outputs, 1.0001);
  }
  ASSERT_FALSE(report.stale_errors.empty());
  for (const auto& e : report.stale_errors) EXPECT_GT(e.error, 0);
  EXPECT_NE(to_json(report).find("stale_errors"), std::string::npos);
  EXPECT_THROW(latents({.plan = "expert=2", .compare_steps = true}), Error);
  EXPECT_THROW(latents({.plan = "schedule=interweaved", .compare_steps = true}), Error);
}

TEST(Denoise, BadPlansAreRefusedBeforeWeightsAreRead) {
  for (const auto& [plan, reason] :
       {std::pair<std::string, std::string>{"expert=99", "the model has"},
        {"data=6", "the request has 5 samples"},
        {"schedule=interweaved,sync=0+77", "names layer 77"},
        {"distrifusion=1000", "a sample has"},
        {"ulysses=40", "use ulysses="},
        {"ring=2,schedule=adaptive", "budget of blocks of 64 tokens"},
        {"expert=2,placement=0+1", "places 2 experts"},
        {"distrifusion=2,schedule=staggered-batch", "leave one of the two out"}}) {
    Report report;
    try {
      latents({plan});
      ADD_FAILURE() << plan << " ran";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::plan) << error.what();
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }
}

class Stopping : public testing::TestWithParam<const char*> {};

TEST_P(Stopping, EndsAllRanks) {
  RunOptions options = golden::options(Precision::f32, 1);
  options.plan = parse_plan(GetParam());
  Model model = Model::open(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", options);
  std::stop_source source;
  RunControl control;
  control.stop = source.get_token();
  control.on_progress = [&](const Progress& p) {
    if (p.step == 2) source.request_stop();
  };
  GenerateRequest request;
  request.classes = {"1", "2"};
  request.steps = 6;
  request.decode = false;
  try {
    model.generate(request, control);
    ADD_FAILURE() << "the stop request was ignored";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled);
  }
}

INSTANTIATE_TEST_SUITE_P(Denoise, Stopping,
                         testing::Values("expert=2,schedule=interweaved",
                                         "expert=3,schedule=staggered-batch",
                                         "schedule=staggered-batch"));

TEST(Denoise, TellsWhatEachRankDid) {
  RunOptions options = golden::options(Precision::f32, 2);
  options.plan = parse_plan("expert=2,schedule=interweaved,warmup=1");
  const Model model = Model::open(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", options);
  GenerateRequest request;
  request.classes = {"1", "2"};
  request.steps = 4;
  request.decode = false;
  std::vector<std::vector<RankProgress>> told;
  RunControl control;
  control.on_progress = [&](const Progress& p) {
    if (p.phase == Phase::denoise && p.step > 0) told.push_back(p.ranks);
  };
  const Report report = model.generate(request, control).report;
  ASSERT_EQ(told.size(), 4U);
  for (size_t step = 0; step < told.size(); ++step) {
    ASSERT_EQ(told[step].size(), 2U);
    for (size_t rank = 0; rank < 2; ++rank) {
      const RankProgress& did = told[step][rank];
      EXPECT_EQ(did.rank, int(rank));
      EXPECT_GT(did.compute_seconds, 0);
      EXPECT_GE(did.wait_seconds, 0);
      if (step > 0) {
        EXPECT_GE(did.sent_bytes, told[step - 1][rank].sent_bytes);
      }
    }
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(told.back()[rank].sent_bytes, report.per_rank.at(rank).sent_bytes);
    ASSERT_EQ(told.back()[rank].expert_ages.size(), 2U) << "results are up to a step old";
    EXPECT_GT(told.back()[rank].expert_ages[1], 0);
  }
}

}  // namespace
}  // namespace tessera
