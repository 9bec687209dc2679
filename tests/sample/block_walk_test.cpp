#include "sample/block_walk.h"

#include <gtest/gtest.h>

#include "tessera/error.h"
#include "tessera/words.h"

namespace tessera::sample {
namespace {

constexpr int32_t kMask = 9, kEnd = 8;
const SpecialIds kSpecial{kMask, {kEnd}};

std::unique_ptr<BlockWalk> walk(int prompt, int64_t tokens, const DecodingPolicy& policy,
                                bool causal) {
  return block_walk(std::vector<int32_t>(size_t(prompt), 1), tokens, policy, kSpecial, causal);
}

// Commits every mask of a pass with the same token; returns the walk as a text of kinds and ranges.
std::string story(BlockWalk& walk, int32_t token) {
  std::string text;
  while (const auto pass = walk.next()) {
    text += std::string(word_of(pass->kind)) + std::to_string(pass->ids.begin) + "-" +
            std::to_string(pass->ids.end) + " ";
    std::vector<Prediction> commits;
    for (int64_t i = pass->decide.begin; i < pass->decide.end; ++i)
      if (walk.ids()[size_t(i)] == kMask) commits.push_back({i, token, 1});
    walk.commit(*pass, commits);
  }
  return text;
}

TEST(BlockWalk, BlocksStandBehindThePromptOrAtMultiples) {
  DecodingPolicy p{.block = 4};
  EXPECT_EQ(story(*walk(3, 6, p, false), 1), "full0-9 full0-9 ");
  EXPECT_EQ(story(*walk(5, 6, p, true), 1), "full0-8 full0-12 ");
}

TEST(BlockWalk, EachCacheComputesItsPart) {
  DecodingPolicy p{.cache = {KvCache::prefix}, .block = 2};
  auto two_step = [&](KvCache cache) {
    p.cache.kind = cache;
    auto w = walk(3, 2, p, false);
    const auto first = w->next();
    w->commit(*first, {{3, 1, 1}});
    return std::make_pair(*first, *w->next());
  };
  const auto prefix = two_step(KvCache::prefix);
  EXPECT_EQ(prefix.first.kind, PassKind::refresh);
  EXPECT_EQ(prefix.second.ids, (Range{3, 5}));
  p.cache.before = 1;
  p.cache.after = 9;
  EXPECT_EQ(two_step(KvCache::vicinity).second.ids, (Range{2, 5}));
  p.cache.warmup = 1;
  const auto warm = two_step(KvCache::vicinity);
  EXPECT_EQ(warm.first.kind, PassKind::full);
  EXPECT_EQ(warm.second.kind, PassKind::refresh);  // nothing is kept yet
}

TEST(BlockWalk, FinishedBlocksAreKeptByOneMorePass) {
  DecodingPolicy p{.cache = {KvCache::block}, .block = 4, .as_published = true};
  EXPECT_EQ(story(*walk(5, 6, p, true), 1), "prefill0-4 block4-8 finalise4-8 block8-12 ");
  EXPECT_EQ(story(*walk(2, 2, p, true), 1), "block0-4 ");
}

TEST(BlockWalk, JoinedPassesKeepWhatTheyPass) {
  DecodingPolicy p{.cache = {KvCache::block}, .block = 4};
  EXPECT_EQ(story(*walk(5, 6, p, true), 1), "block0-8 block4-12 ");
  EXPECT_EQ(story(*walk(2, 2, p, true), 1), "block0-4 ");
}

TEST(BlockWalk, WhatIsKeptAlreadyIsNotComputedAgain) {
  DecodingPolicy p{.cache = {KvCache::block}, .block = 4};
  const auto kept = [&](int prompt, int64_t tokens, bool causal = true) {
    return block_walk(std::vector<int32_t>(size_t(prompt), 1), 6, p, kSpecial, causal, tokens);
  };
  EXPECT_EQ(story(*kept(13, 8), 1), "block8-16 block12-20 ");
  EXPECT_EQ(story(*kept(13, 12), 1), "block12-16 block12-20 ");
  p.as_published = true;
  EXPECT_EQ(story(*kept(13, 8), 1), "prefill8-12 block12-16 finalise12-16 block16-20 ");
  EXPECT_EQ(story(*kept(13, 12), 1), "block12-16 finalise12-16 block16-20 ");
  for (int64_t wrong : {-4, 2, 16}) EXPECT_THROW(kept(13, wrong), Error) << wrong;
  EXPECT_THROW(kept(13, 4, false), Error);
  p.cache.kind = KvCache::none;
  EXPECT_THROW(kept(13, 4), Error);
}

TEST(BlockWalk, SaysWhatIsKept) {
  DecodingPolicy p{.cache = {KvCache::block}, .block = 4};
  for (const bool published : {false, true}) {
    p.as_published = published;
    auto w = walk(5, 6, p, true);
    EXPECT_EQ(w->kept(), 0);
    for (auto pass = w->next(); pass; pass = w->next()) {
      std::vector<Prediction> commits;
      for (int64_t i = pass->decide.begin; i < pass->decide.end; ++i) commits.push_back({i, 1, 1});
      w->commit(*pass, commits);
      // Tokens there are final, and were final in the pass.
      EXPECT_EQ(w->kept(), pass->kind == PassKind::block ? pass->decide.begin : pass->ids.end);
    }
  }
  p = {.block = 4};
  auto uncached = walk(5, 6, p, true);
  story(*uncached, 1);
  EXPECT_EQ(uncached->kept(), 0);
}

TEST(BlockWalk, EndsWithItsBlockOrEarly) {
  DecodingPolicy p{.stop = StopAtEos::block, .block = 4};
  auto w = walk(2, 8, p, false);
  EXPECT_EQ(story(*w, kEnd), "full0-10 ");
  EXPECT_EQ(w->generated(), (std::vector<int32_t>{kEnd}));
  EXPECT_TRUE(w->ended());
  p.stop = StopAtEos::early;
  for (bool causal : {false, true}) {
    auto early = walk(4, 8, p, causal);
    const auto pass = *early->next();
    early->commit(pass, {{5, kEnd, 1}});
    ASSERT_TRUE(early->next());  // with an earlier mask
    early->commit(pass, {{4, 3, 1}});
    EXPECT_FALSE(early->next());
    EXPECT_EQ(early->generated(), (std::vector<int32_t>{3, kEnd}));
  }
}

TEST(BlockWalk, SettledTokensStopAtTheFirstMask) {
  auto w = walk(1, 4, {.block = 4}, false);
  w->commit(*w->next(), {{1, 5, 1}, {3, 5, 1}});
  EXPECT_EQ(w->settled(), 1);
  w->cancel();
  EXPECT_FALSE(w->next());
  EXPECT_EQ(w->generated(), (std::vector<int32_t>{5}));
}

TEST(BlockWalk, ALastBlockIsFilledAsFarAsItIsWanted) {
  for (const bool whole : {false, true}) {
    const auto w = walk(3, 2, {.block = 4, .as_published = whole}, true);
    w->commit(*w->next(), {{3, 5, 1}});
    w->commit(*w->next(), {{6, 5, 1}});  // beyond the requested length
    w->commit(*w->next(), {{4, 5, 1}});
    EXPECT_EQ(w->next().has_value(), whole);
    EXPECT_EQ(w->generated(), (std::vector<int32_t>{5, 5}));
  }
}

TEST(BlockWalk, EditsGoOnUntilNothingChangesOrSoManyPasses) {
  DecodingPolicy p{.rule = DecodingPolicy::Rule::edit, .posts = 3, .block = 4};
  const auto w = walk(3, 5, p, true);
  EXPECT_FALSE(w->may_edit(2));  // position of the prompt
  EXPECT_TRUE(w->may_edit(3));
  w->commit(*w->next(), {{3, 5, 1}});  // no masks remain, but tokens may change
  EXPECT_EQ(w->settled(), 0);
  w->commit(*w->next(), {{3, 6, 1}});
  w->commit(*w->next(), {});  // nothing changes
  EXPECT_EQ(w->settled(), 1);
  EXPECT_EQ(w->next()->ids, (Range{0, 8}));
  EXPECT_EQ(w->settled(), 1) << "a new block is open";
  w->commit(*w->next(), {{4, 5, 1}, {5, 5, 1}, {6, 5, 1}, {7, 5, 1}});
  for (int32_t token = 1; token <= 3; ++token) {
    ASSERT_TRUE(w->next());
    w->commit(*w->next(), {{4, token, 1}});
  }
  EXPECT_FALSE(w->next());
  EXPECT_EQ(w->generated(), (std::vector<int32_t>{6, 3, 5, 5, 5}));
}

// The rule decides the end; a mask inserted by an edit comes after seemingly final tokens.
TEST(BlockWalk, NothingIsSettledBeforeABlockThatEditsItsLengthIs) {
  constexpr int32_t kSplit = 7;
  const auto w = block_walk({1, 1, 1}, 5, {.rule = DecodingPolicy::Rule::edit, .block = 4},
                            {kMask, {kEnd}, 6, kSplit}, true);
  const auto pass = [&](const std::vector<int32_t>& words) {
    const auto next = w->next();
    OpenLogits in{
        {}, {}, tensor::Tensor::zeros({int64_t(words.size()), 10}, tensor::DType::f32), kMask};
    for (int64_t i = std::max(w->prompt(), next->decide.begin); i < next->decide.end; ++i) {
      in.positions.push_back(i);
      in.held.push_back(w->ids()[size_t(i)]);
    }
    for (size_t i = 0; i < words.size(); ++i) in.logits.row<float>(int64_t(i))[words[i]] = 9;
    w->commit(*next, w->rule().choose(in));
  };
  pass({5});
  EXPECT_EQ(w->settled(), 0) << "the first block may still be edited";
  pass({5});
  EXPECT_EQ(w->settled(), 1);
  pass({2, 3, 4, 5});
  pass({2, kSplit, 4, 5});
  EXPECT_EQ(w->ids(), (std::vector<int32_t>{1, 1, 1, 5, 2, kMask, 3, 4}));
  EXPECT_EQ(w->settled(), 1);
  pass({2, 4, 3, 4});
  pass({2, 4, 3, 4});
  EXPECT_FALSE(w->next());
  EXPECT_EQ(w->generated(), (std::vector<int32_t>{5, 2, 4, 3, 4}));
}

TEST(BlockWalk, AnEndThatIsEditedAwayEndsNothing) {
  DecodingPolicy p{.rule = DecodingPolicy::Rule::edit, .stop = StopAtEos::early, .block = 4};
  const auto w = walk(2, 6, p, true);
  w->commit(*w->next(), {{2, kEnd, 1}, {3, 5, 1}});
  ASSERT_TRUE(w->next());
  w->commit(*w->next(), {{2, 4, 1}});
  w->commit(*w->next(), {});
  EXPECT_EQ(w->next()->ids, (Range{0, 8}));
  EXPECT_FALSE(w->ended());
}

TEST(BlockWalk, RefusesAMaskInThePromptAndNothingToDo) {
  EXPECT_THROW(block_walk({1, kMask}, 4, {}, kSpecial, false), Error);
  EXPECT_THROW(block_walk({1}, 0, {}, kSpecial, true), Error);
}

TEST(BlockWalk, AnEmptyPromptIsAWholeRun) {
  EXPECT_EQ(story(*walk(0, 4, {.block = 4}, false), 1), "full0-4 ");
}

}  // namespace
}  // namespace tessera::sample
