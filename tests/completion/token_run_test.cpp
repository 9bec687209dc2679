#include "completion/token_run.h"

#include <gtest/gtest.h>

namespace tessera::completion {
namespace {

sample::TokenPrompt prompt(size_t ids, int64_t behind) {
  return {std::vector<int32_t>(ids, 1), behind};
}

TEST(TokenRun, HasTheLengthsOfItsPromptsAndWholeBlocksInTheCache) {
  sample::DecodingPolicy policy;
  policy.block = 8;
  policy.cache.kind = KvCache::block;
  models::TokenSpec spec;
  spec.block_causal = true;
  const TokenRun run = token_run_of({prompt(21, 11), prompt(3, 5)}, policy, spec, {});
  EXPECT_EQ(run.lengths, sample::sequence_lengths({prompt(21, 11), prompt(3, 5)}, policy, true));
  EXPECT_EQ(run.prefill, (std::vector<int64_t>{16, 0}));
  EXPECT_EQ(run.block, 8);
  EXPECT_TRUE(run.joined);
  EXPECT_TRUE(run.kept.empty());
}

TEST(TokenRun, WithoutACacheOfBlocksEveryPassIsOverAllTokens) {
  sample::DecodingPolicy policy;
  policy.block = 8;
  policy.cache.kind = KvCache::dual;
  policy.as_published = true;
  const TokenRun run = token_run_of({prompt(5, 8)}, policy, models::TokenSpec(), {});
  EXPECT_TRUE(run.prefill.empty());
  EXPECT_FALSE(run.joined);
}

}  // namespace
}  // namespace tessera::completion
