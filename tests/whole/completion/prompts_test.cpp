#include "completion/prompts.h"

#include <gtest/gtest.h>

#include "completion/options.h"
#include "runtime/open_model.h"
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

TEST(Prompts, SeveralAnswersAreThoseOfTheirSeeds) {
  Model model = open(golden::LladaCase("llada_moe").folder + "/model");
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}, {4, 5}};
  q.max_tokens = 8;
  q.stop_at_eos = StopAtEos::none;
  q.temperature = 3;
  q.top_k = 40;
  q.top_p = 0.95;
  q.repetition_penalty = 1.2;
  q.seed = 7;
  q.n = 2;
  const auto all = model.complete(q).completions;
  ASSERT_EQ(all.size(), 4u);
  EXPECT_NE(all[0].ids, all[1].ids);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].prompt, int(i / 2));
    CompleteRequest alone = q;
    alone.n = 1;
    alone.prompt_ids = {q.prompt_ids[i / 2]};
    alone.seed = 7 + i % 2;
    EXPECT_EQ(all[i].seed, alone.seed);
    EXPECT_EQ(model.complete(alone).completions.at(0).ids, all[i].ids) << i;
  }
}

TEST(Prompts, EachStandsAsOftenAsItHasAnswers) {
  const golden::TextModel folder("llada_moe");
  runtime::ModelState state;
  runtime::open_model(folder.path(), golden::options(Precision::f32), state);
  CompleteRequest q;
  q.prompt_ids = {{1, 2, 3}, {4}};
  q.n = 2;
  q.temperature = 0.8;
  q.max_tokens = 8;
  q.block = 8;
  const auto policy = completion::policy_of(q, state.language->spec());
  const auto prompts = completion::prompts_of(q, *state.language, policy);
  ASSERT_EQ(prompts.size(), 4u);
  EXPECT_EQ(prompts[1].ids, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(prompts[1].answer, 1u);
  EXPECT_EQ(prompts[2].ids, (std::vector<int32_t>{4}));
  for (const auto& prompt : prompts) EXPECT_EQ(prompt.max_tokens, 8);
  q.prompt_ids = {{-1}};
  EXPECT_THROW(completion::prompts_of(q, *state.language, policy), Error);
}

}  // namespace
}  // namespace tessera
