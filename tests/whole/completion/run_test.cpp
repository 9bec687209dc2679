#include "completion/run.h"

#include <gtest/gtest.h>

#include <set>

#include "tessera/engine.h"
#include "whole/llada_golden.h"
#include "whole/text_model.h"

namespace tessera {
namespace {

Model open(const std::string& path, const std::string& plan = "") {
  RunOptions options = golden::options(Precision::f32);
  options.plan = parse_plan(plan);
  return Model::open(path, options);
}

TEST(CompletionRun, ABatchIsItsPromptsAlone) {
  const golden::TextModel folder("llada2");
  Model model = open(folder.path());
  CompleteRequest q;
  q.max_tokens = 20;
  q.select = "des-vote:0.5";
  q.prompts = {"a", "Some words", "and a third, longer than the others"};
  const CompleteResult all = model.complete(q);
  for (size_t i = 0; i < 3; ++i) {
    CompleteRequest one = q;
    one.prompts = {q.prompts[i]};
    const Completion alone = model.complete(one).completions[0];
    EXPECT_EQ(alone.ids, all.completions[i].ids);
    EXPECT_EQ(alone.passes.size(), all.completions[i].passes.size());
  }
  for (const auto& pass : all.completions[0].passes) EXPECT_EQ(pass.experts.size(), 2u);
}

TEST(CompletionRun, APenaltyLeavesFewerRepetitions) {
  Model model = open(golden::LladaCase("llada_moe").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}};
  q.max_tokens = 32;
  q.block = 8;
  q.decode = "steps:8";  // a token per pass: each sees all others
  q.stop_at_eos = StopAtEos::none;
  q.repetition_penalty = 100;
  const auto ids = model.complete(q).completions.at(0).ids;
  q.repetition_penalty = 0.01;
  const auto again = model.complete(q).completions.at(0).ids;
  EXPECT_GT(std::set<int32_t>(ids.begin(), ids.end()).size(),
            std::set<int32_t>(again.begin(), again.end()).size());
}

TEST(CompletionRun, Int8ExpertsChangeValuesButNotHowExpertsAreChosen) {
  for (const char* name : {"llada_moe", "llada2"}) {
    const std::string folder = golden::LladaCase(name).folder + "/model";
    CompleteRequest q;
    q.prompt_ids = {{5, 17, 30, 2}, {8}};
    q.max_tokens = 12;
    q.block = 8;
    q.select = "des-vote:0.5";
    q.stop_at_eos = StopAtEos::none;
    const auto run = [&](bool int8, const std::string& plan) {
      RunOptions options = golden::options(int8 ? Precision::int8 : Precision::bf16);
      options.plan = parse_plan(plan);
      return Model::open(folder, options).complete(q);
    };
    const CompleteResult whole = run(false, ""), small = run(true, "");
    EXPECT_NE(small.bytes_read, whole.bytes_read);  // half, in models wider than a panel's step
    // The first layer's router has seen no expert yet.
    EXPECT_EQ(small.completions[0].passes[0].experts[0], whole.completions[0].passes[0].experts[0]);
    const CompleteResult split = run(true, "expert=3");
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(split.completions[i].ids, small.completions[i].ids);
    EXPECT_EQ(split.experts_read, small.experts_read);
  }
}

}  // namespace
}  // namespace tessera
