#include "pipeline/token_memory.h"

#include "engine/llada_golden.h"
#include "engine/text_model.h"

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
    EXPECT_NE(std::string(e.what()).find("this run would need about 0.4 MB (weights 0.4 MB"),
              std::string::npos)
        << e.what();
    EXPECT_NE(std::string(e.what()).find("--memory-budget allows 0.1 MB"), std::string::npos);
  }
  options.memory_budget = 10000000;
  EXPECT_NO_THROW(Model::open(folder.path(), options).complete(q));
}

TEST(TokenMemory, SaysWhichDtypeWouldFit) {
  const golden::TextModel folder("llada_moe");
  RunOptions options = golden::options(Precision::f32);
  const auto inspect = [&] { return Model::open(folder.path(), options).inspect(); };
  options.memory_budget = inspect().memory.at("peak") - 1;
  EXPECT_NE(inspect().unfit.find("--dtype bf16 would need"), std::string::npos) << inspect().unfit;
  options.memory_budget = 1000;
  EXPECT_NE(inspect().unfit.find("spread it over machines"), std::string::npos);
}

TEST(TokenMemory, InspectForeseesWhatARunHolds) {
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

}  // namespace
}  // namespace tessera
