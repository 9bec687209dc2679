#include "base/json.h"
#include "base/stop.h"
#include "golden.h"
#include "load/tensor_set.h"
#include "parallel/experts/exchange.h"
#include "pipeline/model_state.h"

namespace tessera {
namespace {

TEST(Inspect, CountsTheParametersOfThePublishedSizes) {
  // Transformer and position table of DiT-MoE-XL and G as their authors' code builds them.
  const RunOptions run = golden::options(Precision::bf16);
  EXPECT_EQ(inspect_by_name("dit_moe_xl", run).components[0].parameters, 4168172192);
  EXPECT_EQ(inspect_by_name("dit_moe_g", run).components[0].parameters, 16503731232);
}

TEST(Inspect, MemoryOfARunHoldsTheWeights) {
  const auto found = inspect_by_name("dit_moe_s", golden::options(Precision::bf16));
  EXPECT_GT(found.memory.at("weights"), 2 * found.components[0].parameters * 9 / 10);
  EXPECT_GT(found.memory.at("peak"), found.memory.at("weights"));
  EXPECT_GT(found.flops_per_step, 1e9);
}

TEST(Inspect, KnowsItsNames) {
  try {
    inspect_by_name("dit_moe_xxl", golden::options(Precision::bf16));
    FAIL() << "an unknown size was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("dit_moe_xl"), std::string::npos);
  }
}

TEST(Inspect, RefusesRunsThatCannotBe) {
  const RunOptions run = golden::options(Precision::bf16);
  for (const auto& [count, width] : {std::pair<int, int64_t>{0, 256}, {1, -8}, {1, 100}}) {
    GenerateRequest request;
    request.count = count;
    request.width = width;
    EXPECT_THROW(inspect_by_name("dit_moe_s", run, request), Error) << count << ' ' << width;
  }
}

RunOptions under(const std::string& plan, Precision precision = Precision::bf16) {
  RunOptions run = golden::options(precision);
  run.plan = parse_plan(plan);
  return run;
}

TEST(Inspect, RanksOfAPlanShareTheExperts) {
  GenerateRequest request;
  request.count = 16;
  const auto alone = inspect_by_name("dit_moe_xl", under("schedule=interweaved"), request);
  const auto shared = inspect_by_name("dit_moe_xl", under("expert=8"), request);
  const auto stale = inspect_by_name("dit_moe_xl", under("expert=8,schedule=interweaved"), request);
  ASSERT_EQ(alone.ranks.size(), 1u);
  ASSERT_EQ(shared.ranks.size(), 8u);
  EXPECT_EQ(shared.plan, "data=8,expert=8");
  const Inspection::Rank& rank = shared.ranks[7];
  EXPECT_EQ(rank.experts, 1);
  EXPECT_EQ(rank.tokens, 2 * 2 * 256);
  // 28 layers, 7 experts of 3 * 1152 * 4608 elements less.
  EXPECT_NEAR(double(alone.ranks[0].weights - rank.weights), 28.0 * 7 * 3 * 1152 * 4608 * 2, 1e8);
  EXPECT_EQ(rank.kept_rows, 0);
  EXPECT_EQ(stale.ranks[7].kept_rows, 28 * rank.tokens * 2 * (1152 * 2 + 4));
  EXPECT_EQ(stale.ranks[0], stale.ranks[7]);
}

TEST(Inspect, RanksMayBeUnequal) {
  const auto found = inspect_by_name("dit_moe_s", under("expert=3,placement=0+0+0+0+0+1+1+1"));
  ASSERT_EQ(found.ranks.size(), 3u);  // a single picture
  EXPECT_EQ(found.ranks[0].tokens, 0);
  EXPECT_EQ(found.ranks[2].tokens, 512);
  EXPECT_EQ(found.ranks[0].experts, 5);
  EXPECT_EQ(found.ranks[2].experts, 0);
  EXPECT_GT(found.ranks[0].weights, found.ranks[1].weights);
  EXPECT_GT(found.ranks[2].activations, found.ranks[0].activations);
}

TEST(Inspect, BadPlansAreRefusedBeforeAnythingIsComputed) {
  GenerateRequest request;
  for (const auto& [plan, reason] :
       {std::pair<std::string, std::string>{"expert=9", "the model has 8 experts"},
        {"data=2", "the request has 1 pictures"},
        {"schedule=interweaved,sync=28", "names layer 28"}})
    try {
      inspect_by_name("dit_moe_xl", under(plan), request);
      ADD_FAILURE() << plan << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::plan);
      EXPECT_NE(std::string(e.what()).find(reason), std::string::npos) << e.what();
    }
}

TEST(Inspect, BadPlansOfLanguageModelsAreRefused) {
  for (const auto& [plan, reason] :
       {std::pair<std::string, std::string>{"tensor=3", "tensor=3 does not divide"},
        {"expert=99", "expert=99"},
        {"distrifusion=2", "distrifusion= is for pictures; language models take"}})
    try {
      Model::open(TESSERA_TEST_DATA "/moe/llada2/model", under(plan)).inspect();
      ADD_FAILURE() << plan << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::plan);
      EXPECT_NE(std::string(e.what()).find(reason), std::string::npos) << e.what();
      EXPECT_EQ(std::string(e.what()).find("nothing is stale"), std::string::npos) << e.what();
    }
}

// Foretold of each rank against what a run reports of the one that needs most.
TEST(Inspect, ForetellsWhatARunKeeps) {
  const char* folder = TESSERA_TEST_DATA "/moe/dit_moe_flash/model";
  for (const char* plan :
       {"expert=2", "expert=2,schedule=interweaved", "expert=3,schedule=displaced,sync-every=3",
        "expert=2,schedule=adaptive,budget=30", "expert=2,schedule=staggered-batch",
        "data=2,distrifusion=2,expert=4,schedule=interweaved,sync=deep"}) {
    GenerateRequest request;
    request.count = 1;
    request.steps = 6;
    request.classes = {"1"};
    request.count = 5;
    request.decode = false;
    Model model = Model::open(folder, under(plan));
    const auto foretold = model.inspect(request).ranks;
    const Report report = model.generate(request).report;
    int64_t kept = 0, kv = 0, buffers = 0;
    for (const Inspection::Rank& rank : foretold) {
      kept = std::max(kept, rank.kept_rows);
      kv += rank.kv;
      buffers += rank.exchange + rank.kept_rows;
    }
    EXPECT_EQ(report.kept_row_bytes, kept) << plan;
    EXPECT_EQ(report.peak_bytes.kv, kv) << plan;
    EXPECT_LE(report.peak_bytes.buffers, buffers + buffers / 2) << plan;
    EXPECT_GE(2 * report.peak_bytes.buffers, report.kept_row_bytes) << plan;
    ASSERT_EQ(report.per_rank.size(), foretold.size()) << plan;
    double flops = 0;
    for (size_t r = 0; r < foretold.size(); ++r) {
      const auto& peak = report.per_rank[r].peak_bytes;
      EXPECT_NEAR(double(peak.weights), double(foretold[r].weights),
                  0.05 * double(foretold[r].weights))
          << plan << ", rank " << r;
      EXPECT_EQ(peak.kv, foretold[r].kv) << plan << ", rank " << r;
      EXPECT_LE(peak.total, report.peak_bytes.total) << plan << ", rank " << r;
      flops += report.per_rank[r].flops;
    }
    EXPECT_DOUBLE_EQ(flops, report.flops) << plan;
  }
}

TEST(Inspect, ForetellsTheWeightsOfARank) {
  const std::string folder = TESSERA_TEST_DATA "/moe/dit_moe_flash/model";
  const load::TensorSet tensors = load::open_component(folder);
  const base::Json config = base::read_json(folder + "/config.json");
  const auto recipe = models::pipeline_of("dit_moe", {config, "config.json"});
  for (Precision precision : {Precision::f32, Precision::bf16}) {
    const auto foretold = Model::open(folder, under("expert=3", precision)).inspect().ranks;
    for (size_t r = 0; r < 3; ++r) {
      nn::Portion portion = recipe.whole();
      for (int owner : parallel::experts_in_blocks(4, 3))
        portion.experts.push_back(owner == int(r));
      tensor::Scope scope;
      scope.memory = std::make_shared<tensor::MemoryTracker>();
      const tensor::BindScope bind(scope);
      const load::WeightStore store;
      const auto network =
          recipe.make(*store.open(tensors), portion,
                      precision == Precision::f32 ? tensor::DType::f32 : tensor::DType::bf16);
      // The table of classes stays as the file has it, f32 here, and is foretold as bf16.
      EXPECT_NEAR(double(scope.memory->current(tensor::MemoryClass::weights)),
                  double(foretold[r].weights), 0.015 * double(foretold[r].weights))
          << r;
    }
  }
}

// In a callback of a run that was told to stop, the thread's own stop is that run's.
TEST(Inspect, HeedsItsOwnStopAlone) {
  std::stop_source stopped;
  stopped.request_stop();
  const RunOptions run = golden::options(Precision::f32);
  const Model model = Model::open(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", run);
  const base::BindStop around(stopped.get_token());
  EXPECT_FALSE(model.inspect().components.empty());
  EXPECT_FALSE(inspect_by_name("dit_moe_s", run).components.empty());
  EXPECT_THROW(model.inspect({}, stopped.get_token()), Error);
}

TEST(Inspect, ReadsAFolder) {
  const Model model =
      Model::open(TESSERA_TEST_DATA "/moe/dit_moe_flash/model", golden::options(Precision::f32));
  const auto found = model.inspect();
  ASSERT_FALSE(found.components.empty());
  EXPECT_EQ(found.components[0].facts.at("depth"), "3");
  EXPECT_GT(found.components[0].parameters, 1000);
}

}  // namespace
}  // namespace tessera
