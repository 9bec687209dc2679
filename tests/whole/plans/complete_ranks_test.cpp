#include <algorithm>
#include <cmath>
#include <stop_token>
#include <tuple>

#include "base/fail.h"
#include "comm/threads/launch.h"
#include "parallel/decode.h"
#include "tessera/engine.h"
#include "whole/llada_golden.h"
#include "whole/text_model.h"

// Language models on several ranks against a single rank: ids, passes and distinct experts of each.
namespace tessera {
namespace {

CompleteRequest batch(const std::string& select) {
  CompleteRequest q;
  q.prompt_ids = {{5, 17, 30, 2, 9, 9, 4, 1, 2}, {8, 9, 10}, {3}};
  q.max_tokens = 21;
  q.block = 8;
  q.decode = "threshold:0.5";
  q.select = select;
  q.stop_at_eos = StopAtEos::none;
  return q;
}

CompleteResult run(const std::string& model, const std::string& plan, Precision precision,
                   const CompleteRequest& request) {
  RunOptions options = golden::options(precision);
  options.plan = parse_plan(plan);
  return Model::open(golden::LladaCase(model).folder + "/model", options).complete(request);
}

void expect_same(const CompleteResult& one, const CompleteResult& many, const std::string& what) {
  EXPECT_EQ(many.forwards, one.forwards) << what;
  EXPECT_EQ(many.experts_read, one.experts_read) << what;
  ASSERT_EQ(many.completions.size(), one.completions.size());
  for (size_t i = 0; i < one.completions.size(); ++i) {
    const Completion &a = one.completions[i], &b = many.completions[i];
    EXPECT_EQ(a.ids, b.ids) << what;
    EXPECT_EQ(a.finish, b.finish) << what;
    ASSERT_EQ(a.passes.size(), b.passes.size()) << what;
    for (size_t p = 0; p < a.passes.size(); ++p) {
      EXPECT_EQ(a.passes[p].kind, b.passes[p].kind) << what;
      EXPECT_EQ(a.passes[p].committed, b.passes[p].committed) << what;
      EXPECT_EQ(a.passes[p].experts, b.passes[p].experts) << what;
    }
  }
}

TEST(CompleteRanks, ExpertsOfAnyNumberOfRanksGiveTheRunOfOne) {
  for (const char* model : {"llada_moe", "llada2"})
    for (Precision precision : {Precision::f32, Precision::bf16})
      for (const char* select : {"vanilla", "des-vote:0.25", "des-seq:1", "mc:0.3,0.1,0.2"}) {
        const CompleteRequest q = batch(select);
        const CompleteResult one = run(model, "", precision, q);
        EXPECT_EQ(one.bytes_sent, 0);
        for (const char* plan : {"expert=2", "expert=3", "expert=4,placement=strided",
                                 "expert=3,moe=fused", "expert=4,moe=fused,placement=strided"}) {
          const CompleteResult many = run(model, plan, precision, q);
          expect_same(one, many, fmt::format("{} {} {}", model, select, plan));
          EXPECT_GT(many.bytes_sent, 0);
        }
      }
}

TEST(CompleteRanks, LaterReleasesGiveTheRunOfOne) {
  for (const auto& [model, decode, block] :
       {std::tuple{"llada21_editing", "edit:quality", 7}, {"llada22_block_routing", "", 8}})
    for (const char* cache : {"none", "block"}) {
      CompleteRequest q = batch("vanilla");
      q.block = block;
      q.decode = decode;
      q.cache = parse_cache(cache);
      const CompleteResult one = run(model, "", Precision::f32, q);
      for (const char* plan : {"expert=2", "expert=3", "expert=2,moe=fused", "tensor=2"})
        expect_same(one, run(model, plan, Precision::f32, q), fmt::format("{} {}", model, plan));
    }
}

TEST(CompleteRanks, EveryCacheGivesTheRunOfOne) {
  for (const auto& [model, cache] : {std::pair{"llada_moe", "none"},
                                     {"llada_moe", "prefix"},
                                     {"llada_moe", "vicinity:4,4,1"},
                                     {"llada2", "none"}}) {
    CompleteRequest q = batch("des-max:0.5");
    q.cache = parse_cache(cache);
    expect_same(run(model, "", Precision::f32, q), run(model, "expert=3", Precision::f32, q),
                cache);
    expect_same(run(model, "", Precision::f32, q),
                run(model, "expert=3,moe=fused", Precision::f32, q), cache);
    expect_same(run(model, "", Precision::f32, q), run(model, "tensor=2", Precision::f32, q),
                cache);
  }
}

TEST(CompleteRanks, ShardsGiveTheIdsOfOneAndAreRepeatable) {
  for (const char* model : {"llada_moe", "llada2"})
    for (const char* select : {"vanilla", "des-vote:0.25"}) {
      const CompleteRequest q = batch(select);
      const CompleteResult one = run(model, "", Precision::f32, q);
      expect_same(one, run(model, "tensor=2", Precision::f32, q), model);
      const CompleteResult bf16 = run(model, "tensor=2", Precision::bf16, q);
      expect_same(bf16, run(model, "tensor=2", Precision::bf16, q), model);
    }
  const CompleteRequest q = batch("vanilla");
  expect_same(run("llada_moe", "", Precision::f32, q),
              run("llada_moe", "tensor=4", Precision::f32, q), "tensor=4");
}

// The logits of a pass over a sequence, at rank 0.
std::vector<float> logits(const golden::LladaCase& golden, const std::string& text, bool fused) {
  const Plan plan = parse_plan(text);
  const auto spec = golden.spec();
  const auto tensors = load::open_component(golden.folder + "/model");
  const std::vector<int32_t> ids{5, 17, 30, 2, 9, 94, 94, 94, 94, 94, 94, 94, 94};
  const nn::TokenView view{-1, {0}, {}, {{0, {0, 13}}}, {13}};
  std::vector<float> found;
  const auto pass = [&](comm::Communicator* world) {
    const int rank = world ? world->rank() : 0;
    const nn::Geometry geometry = golden.load()->geometry();
    const auto own = spec.make(*golden.store.open(tensors),
                               parallel::portion_of(plan, geometry, rank), nn::DType::f32, 0);
    parallel::Setup setup(
        plan, own->geometry(),
        {.text = {{view.lengths, nn::parse_selection(fused ? "des-vote:0.5" : "vanilla")}}}, world);
    setup.policy->restrict_to({{0, nn::kAllTokens}});
    const auto values = parallel::forward(*own, {0, view, view.body, ids}, setup, {}).to_floats();
    if (rank == 0) found = values;
  };
  if (plan.world() == 1)
    pass(nullptr);
  else
    comm::threads::run(plan.world(), std::chrono::seconds(20),
                       [&](comm::Communicator& world) { pass(&world); });
  return found;
}

TEST(CompleteRanks, LogitsOfShardsDifferByRoundingAndOfExpertsNotAtAll) {
  for (const char* name : {"llada_moe", "llada2"})
    for (bool fused : {false, true}) {
      const golden::LladaCase golden(name);
      const auto one = logits(golden, "", fused);
      EXPECT_EQ(logits(golden, "expert=3", fused), one);
      const auto shards = logits(golden, "tensor=2", fused);
      EXPECT_EQ(shards, logits(golden, "tensor=2", fused));
      double error = 0, length = 0;
      for (size_t i = 0; i < one.size(); ++i) {
        error += std::pow(double(one[i]) - double(shards[i]), 2);
        length += std::pow(double(one[i]), 2);
      }
      EXPECT_LT(std::sqrt(error / length), 1e-5) << name;
    }
}

TEST(CompleteRanks, PlansThatCannotRunAreRefusedBeforeWeightsAreRead) {
  const golden::TextModel folder("llada2");
  std::filesystem::remove(folder.path("model.safetensors"));
  const std::pair<const char*, const char*> bad[] = {
      {"tensor=3", "valid are: 1, 2"},
      {"tensor=4", "valid are: 1, 2"},
      {"expert=17", "use at most 16"},
      {"data=2", "prompts are not spread"},
      {"expert=2,schedule=interweaved", "nothing is stale"}};
  for (const auto& [plan, says] : bad) {
    const std::string message = golden::error_of([&, text = plan] {
      RunOptions options = golden::options(Precision::f32);
      options.plan = parse_plan(text);
      Model::open(folder.path(), options).complete(batch("vanilla"));
    });
    EXPECT_NE(message.find(says), std::string::npos) << plan << ": " << message;
  }
}

TEST(CompleteRanks, AStopRequestEndsAllRanks) {
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan("expert=3");
  Model model = Model::open(golden::LladaCase("llada_moe").folder + "/model", options);
  std::stop_source stop;
  CompleteControl control;
  control.stop = stop.get_token();
  control.on_progress = [&](const CompleteProgress&) { stop.request_stop(); };
  EXPECT_NE(golden::error_of([&] { model.complete(batch("vanilla"), control); }).find("stopped"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
