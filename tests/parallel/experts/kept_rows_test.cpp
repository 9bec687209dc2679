#include "parallel/experts/kept_rows.h"

#include <gtest/gtest.h>

namespace tessera::parallel {
namespace {

// The example of the published formulas: DiT-MoE-XL, 8192 tokens a rank, bf16.
constexpr RowSizes kXl{.layers = 28, .top_k = 2, .tokens = 8192, .token_bytes = 1152 * 2};

int64_t kept(const std::string& plan, int steps = 20) {
  return kept_row_bytes(parse_plan(plan), steps, kXl);
}

TEST(KeptRows, FollowThePublishedFormulas) {
  EXPECT_EQ(kept(""), 0);
  EXPECT_EQ(28 * kXl.home() + kXl.home(), 1094713344) << "interweaved, with one dispatch";
  EXPECT_EQ(kept("schedule=interweaved"), 28 * kXl.wire());
  EXPECT_EQ(2 * 28 * kXl.home(), 2113929216) << "displaced";
  EXPECT_EQ(kept("schedule=displaced"), 2 * 28 * kXl.wire());
  EXPECT_EQ(kept("schedule=interweaved,sync=deep"), 14 * kXl.wire());
  EXPECT_EQ(kept("schedule=staggered-batch"), kXl.wire());
  const int64_t token = kXl.tokens * kXl.token_bytes;
  EXPECT_EQ(kept("schedule=adaptive"), 28 * (kXl.home() + token));
}

TEST(KeptRows, WhatNoStepReadsIsNotKept) {
  EXPECT_EQ(kept("schedule=interweaved,warmup=20"), 0);
  EXPECT_EQ(kept("schedule=interweaved", 2), 28 * kXl.home()) << "the last result is not sent";
  EXPECT_EQ(kept("schedule=displaced,sync-every=1"), 0);
}

TEST(KeptRows, LeftOutSlotsNeedTheStepBefore) {
  EXPECT_EQ(kept("schedule=interweaved,conditional=low"), 28 * (kXl.home() + kXl.wire()));
  EXPECT_EQ(kept("conditional=low"), 28 * kXl.home());
}

TEST(KeptRows, ExchangesOfOneLayer) {
  EXPECT_EQ(exchange_bytes(kXl, 1), kXl.wire() + kXl.home());
  EXPECT_EQ(exchange_bytes(kXl, 2), (kXl.wire() + kXl.home()) * 3 / 2);
  EXPECT_EQ(exchange_bytes({}, 4), 0);
}

}  // namespace
}  // namespace tessera::parallel
