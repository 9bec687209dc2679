#include "admission/token_memory.h"

#include <mutex>
#include <set>

#include "completion/recorder.h"
#include "load/weights_file.h"
#include "pipeline/complete.h"
#include "runtime/open_model.h"
#include "whole/llada_golden.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

TEST(TokenMemory, WhatDoesNotFitIsRefusedBeforeWeightsAreRead) {
  const golden::TextModel folder("llada_moe");
  RunOptions options = golden::options(Precision::f32);
  options.memory_budget = 100000;
  Model model = Model::open(folder.path(), options);
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 8;
  try {
    model.complete(q);
    ADD_FAILURE() << "the run took place";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::memory);
    EXPECT_NE(std::string(e.what()).find(
                  "this run, with the 16 experts that a pass may ask of a layer and the others "
                  "left in the folder, would need about 0.2 MB (weights 0.2 MB"),
              std::string::npos)
        << e.what();
    EXPECT_NE(std::string(e.what()).find("`memory_budget` allows 0.1 MB"), std::string::npos);
  }
  options.memory_budget = 10000000;
  EXPECT_NO_THROW(Model::open(folder.path(), options).complete(q));
}

TEST(TokenMemory, SaysWhichDtypeWouldFit) {
  const golden::TextModel folder("llada_moe");
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan("expert=2");  // a single rank would stream experts
  const auto inspect = [&] { return Model::open(folder.path(), options).inspect(); };
  options.memory_budget = inspect().memory.at("process") - 1;
  EXPECT_NE(inspect().unfit.find("`dtype` bf16 would need"), std::string::npos) << inspect().unfit;
  options.memory_budget = 1000;
  EXPECT_NE(inspect().unfit.find("spread it over machines"), std::string::npos);
}

TEST(TokenMemory, InspectPredictsWhatARunHolds) {
  for (const char* name : {"llada_moe", "llada2"}) {
    const golden::TextModel folder(name);
    Model model = Model::open(folder.path(), golden::options(Precision::bf16));
    const Inspection found = model.inspect();
    EXPECT_EQ(found.prompt_tokens, 128);
    EXPECT_EQ(found.answer_tokens, 128);
    EXPECT_EQ(found.unfit, "");
    EXPECT_GT(found.seconds.at("pass"), 0);
    EXPECT_NE(found.expected.find("s a pass"), std::string::npos) << found.expected;
    EXPECT_GT(found.flops_per_step, 0);
    const int64_t weights = found.memory.at("weights");
    // bf16, but for norms and routers; the embedding stays in the file.
    EXPECT_LT(weights, 3 * found.components[0].parameters);
    EXPECT_GT(weights, found.components[0].parameters);
    EXPECT_EQ(found.memory.at("peak"), weights + found.memory.at("activations"));
    EXPECT_GT(found.memory.at("kv"), 0);
    EXPECT_GT(found.memory.at("activations"), found.memory.at("kv"));
    EXPECT_EQ(found.components[0].facts.at("mask_token_id"), "95");
  }
}

// Bytes of the networks of all ranks; parts of several ranks are shared.
int64_t loaded_bytes(const runtime::ModelState& state) {
  tensor::Scope scope;
  scope.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(scope);
  const auto weights =
      load::WeightStore().open(load::open_weights(state.folder.component("model")));
  std::vector<std::unique_ptr<nn::TokenModel>> networks;
  for (int rank = 0; rank < state.options.plan.world(); ++rank)
    networks.push_back(state.language->spec().make(
        *weights,
        parallel::portion_of(state.options.plan, state.language->geometry(state.dtype()), rank),
        state.dtype(), 0));
  return scope.memory->current(tensor::MemoryClass::weights);
}

TEST(TokenMemory, RanksHoldWhatIsPredicted) {
  const golden::TextModel folder("llada_moe");
  for (const std::string plan : {"tensor=2", "expert=2"}) {
    RunOptions options = golden::options(Precision::bf16);
    options.plan = parse_plan(plan);
    runtime::ModelState state;
    runtime::open_model(folder.path(), options, state);
    CompleteRequest q;
    q.prompt_ids = {{1, 2, 3, 4, 5, 6, 7, 8}};
    q.max_tokens = q.block = 8;
    q.cache.kind = KvCache::none;  // every pass is over all tokens
    std::mutex mutex;
    std::set<std::shared_ptr<tensor::MemoryTracker>> ranks;
    completion::PassWatch watch;
    watch.experts = [&](const nn::MoeWork&) {
      const std::lock_guard lock(mutex);
      ranks.insert(tensor::current_scope().memory);
    };
    pipeline::complete(state, q, {}, watch);
    const auto need = admission::dry_run_tokens(state, options, {{16}, 8, 8});
    ASSERT_EQ(need.ranks.size(), 2u);
    ASSERT_EQ(ranks.size(), 2u);
    const int experts = state.language->geometry(state.dtype()).experts.at(0).experts;
    for (const Inspection::Rank& predicted : need.ranks) {
      EXPECT_GT(predicted.sent, 0) << plan;
      EXPECT_EQ(predicted.experts, plan == "expert=2" ? experts / 2 : experts) << plan;
      for (const auto& did : ranks) {
        EXPECT_EQ(did->peak(tensor::MemoryClass::kv), predicted.kv) << plan;
        EXPECT_EQ(did->peak(tensor::MemoryClass::weights), predicted.weights) << plan;
        if (plan != "tensor=2") continue;  // routing decides the work of each rank
        EXPECT_NEAR(double(did->peak()), double(predicted.total), 0.05 * double(did->peak()))
            << plan;
      }
    }
    // Slices are padded to whole tiles, so those of all ranks may weigh more than the network.
    EXPECT_EQ(loaded_bytes(state), need.weights) << plan;
  }
}

// The largest passes alone need exactly as much memory as all passes.
TEST(TokenMemory, TheLargestPassesStandForAll) {
  using completion::TokenRun;
  for (const char* name : {"llada_moe", "llada2"})
    for (const std::string plan : {"", "tensor=2", "expert=2"}) {
      const golden::TextModel folder(name);
      RunOptions options = golden::options(Precision::bf16);
      options.plan = parse_plan(plan);
      runtime::ModelState state;
      runtime::open_model(folder.path(), options, state);
      for (TokenRun run : std::vector<TokenRun>{
               {{104}, 8, 8, {8}},
               {{104}, 8, 8, {0}},
               {{120, 40, 77}, 8, 8, {40, 0, 16}},
               {{64, 64, 200}, 4, 16, {48, 16, 16}},
               {{33, 250}, 32, 32, {32, 0}},
               {{16}, 8, 8},
           })
        for (const bool joined : {false, true}) {
          run.joined = joined;
          const auto few = admission::dry_run_tokens(state, options, run);
          const auto all = admission::dry_run_tokens(state, options, run, admission::Passes::all);
          const std::string what =
              fmt::format("{} {} {} joined {}", name, plan, fmt::join(run.lengths, "+"), joined);
          EXPECT_EQ(few.process, all.process) << what;
          EXPECT_EQ(few.weights, all.weights) << what;
          ASSERT_EQ(few.ranks.size(), all.ranks.size());
          for (size_t r = 0; r < few.ranks.size(); ++r) {
            const Inspection::Rank &a = few.ranks[r], &b = all.ranks[r];
            EXPECT_EQ(a.total, b.total) << what;
            EXPECT_EQ(a.activations, b.activations) << what;
            EXPECT_EQ(a.buffers, b.buffers) << what;
            EXPECT_EQ(a.kv, b.kv) << what;
            EXPECT_NEAR(a.flops, b.flops, 1e-9 * b.flops) << what;
            EXPECT_EQ(a.sent, b.sent) << what;
          }
        }
    }
}

TEST(TokenMemory, ALongCompletionIsRunDryByAFewPasses) {
  const golden::TextModel folder("llada2");
  runtime::ModelState state;
  const RunOptions options = golden::options(Precision::bf16);
  runtime::open_model(folder.path(), options, state);
  const auto passes = [&](int64_t length) {
    completion::TokenRun run{{length, length / 2}, 32, 32, {32, 32}, true};
    const auto found = admission::dry_run_tokens(state, options, run);
    return std::pair(found, found.work);
  };
  const auto [some, some_work] = passes(1 << 10);
  const auto [long_run, long_work] = passes(1 << 19);
  EXPECT_GT(long_run.ranks[0].kv, 500 * some.ranks[0].kv);
  const auto looked = [](const diffusion::Work& work) { return work.at("attention").calls; };
  EXPECT_EQ(looked(long_work), looked(some_work)) << "however long it is";
}

}  // namespace
}  // namespace tessera
