#include "admission/expert_memory.h"

#include <gtest/gtest.h>

#include "completion/streamed_experts.h"
#include "runtime/open_model.h"
#include "whole/golden.h"
#include "whole/text_model.h"

namespace tessera::admission {
namespace {

TEST(ExpertMemory, CountUpToThoseThatARankHas) {
  const golden::TextModel folder("llada_moe");
  runtime::ModelState state;
  runtime::open_model(folder.path(), golden::options(Precision::bf16), state);
  const ExpertMemory held(state, state.options);
  const int64_t all = completion::resident_experts(state, INT64_MAX, 0);
  const int64_t one = completion::expert_bytes(state).packed;
  EXPECT_EQ(held.most(), all);
  EXPECT_EQ(held.bytes(3), 3 * one);
  EXPECT_EQ(held.bytes(2 * all), all * one);
  DryRun alone;
  alone.ranks.resize(1);
  alone.process = 7;
  const DryRun both = held.beside(alone, 3);
  EXPECT_EQ(both.process, 7 + 3 * one);
  EXPECT_EQ(both.weights, 3 * one);
  EXPECT_EQ(both.ranks[0].total, 3 * one);
}

TEST(ExpertMemory, RanksThatAreThreadsHoldTheirsTogether) {
  const golden::TextModel folder("llada_moe");
  runtime::ModelState state;
  RunOptions options = golden::options(Precision::bf16);
  runtime::open_model(folder.path(), options, state);
  options.plan = parse_plan("expert=2");
  const ExpertMemory one(state, state.options), two(state, options);
  EXPECT_EQ(two.most(), one.most() / 2);
  EXPECT_EQ(two.bytes(INT64_MAX), one.bytes(INT64_MAX));
}

}  // namespace
}  // namespace tessera::admission
