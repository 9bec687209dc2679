#include "parallel/experts/stale_results.h"

#include <gtest/gtest.h>

#include "nn/random_bank.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using nn::Segments;
using nn::Tensor;
using nn::random_bank::normal;

// A call with (sequence, id) as the row of a token.
CallResults& launch(StaleResults& kept, int step, const Segments& of) {
  CallResults& call = kept.launch(step, of);
  std::vector<float> values;
  for (const nn::Segment& s : of)
    for (int64_t id = s.ids.begin; id < s.ids.end; ++id)
      values.insert(values.end(), {float(s.sequence), float(id)});
  call.rows = Tensor::from(std::span<const float>(values), {int64_t(values.size()) / 2, 2});
  return call;
}

std::vector<float> read(StaleResults& kept, int step, const Segments& of) {
  return kept
      .read(step, of, 1, normal({1, 2}, 1), [](const CallResults& call) { return call.rows; })
      .to_floats();
}

TEST(StaleResults, FindTokensHoweverTheirStepWasCut) {
  StaleResults kept;
  launch(kept, 3, {{0, {0, 4}}, {1, {0, 2}}});
  launch(kept, 3, {{0, {4, 6}}, {1, {2, 3}}});
  EXPECT_EQ(read(kept, 3, {{0, {3, 5}}, {1, {1, 3}}}),
            (std::vector<float>{0, 3, 0, 4, 1, 1, 1, 2}));
  EXPECT_TRUE(read(kept, 3, {}).empty());
  EXPECT_THROW(read(kept, 3, {{1, {2, 4}}}), Error);
  EXPECT_THROW(read(kept, 2, {{0, {0, 1}}}), Error);
}

TEST(StaleResults, OneCallWithJustTheseTokensIsReadInPlace) {
  StaleResults kept;
  CallResults& call = launch(kept, 0, {{0, {0, 4}}});
  const auto part = [](const CallResults& of) { return of.rows; };
  EXPECT_EQ(kept.read(0, {{0, {0, 4}}}, 1, call.rows, part).raw(), call.rows.raw());
}

TEST(StaleResults, RowsUnderWayNeedThoseOfEveryStepThatTheyReuse) {
  StaleResults kept;
  launch(kept, 0, {{0, {0, 4}}}).sources.resize(4);
  const CallResults* before = &kept.at(0).back();
  for (int step : {1, 2, 3}) {  // no results have arrived yet
    CallResults& call = kept.launch(step, {{0, {0, 4}}});
    call.sources.resize(4);
    call.reuse(1, *before, 1);
    before = &call;
  }
  EXPECT_EQ(kept.needed(4), 4) << "nothing from there on is under way";
  EXPECT_EQ(kept.needed(3), 0) << "3 reuses 2, which reuses 1, which reuses 0";
  EXPECT_EQ(kept.needed(2), 0);
}

TEST(StaleResults, ACallGoesWhenAllOfItsTokensAreForgotten) {
  StaleResults kept;
  launch(kept, 0, {{0, {0, 4}}, {1, {0, 4}}});
  launch(kept, 1, {{0, {0, 4}}});
  EXPECT_EQ(kept.bytes(), 12 * 8);
  kept.forget(1, {{0, {1, 3}}});
  kept.forget(1, {{0, {1, 3}}, {1, {0, 4}}});
  EXPECT_EQ(kept.bytes(), 12 * 8) << "ids 0 and 3 are still wanted";
  kept.forget(1, {{0, {0, 1}}, {0, {3, 4}}});
  EXPECT_EQ(kept.bytes(), 4 * 8);
  EXPECT_EQ(kept.at(0).size(), 0u);
  EXPECT_EQ(kept.at(1).size(), 1u);
}

TEST(StaleResults, WhatIsUnderWayNeedsTheStepThatItTakesRowsFrom) {
  StaleResults kept;
  CallResults& before = launch(kept, 4, {{0, {0, 2}}});
  before.sources = {2, 4};
  CallResults& call = kept.launch(5, {{0, {0, 2}}});
  call.sources = {5, 5};
  EXPECT_EQ(kept.needed(5), 5);
  call.reuse(1, before, 0);
  EXPECT_EQ(call.sources, (std::vector<int32_t>{5, 2}));
  EXPECT_EQ(kept.needed(5), 4);
  call.rows = before.rows;
  EXPECT_EQ(kept.needed(5), 5) << "it is home";
}

}  // namespace
}  // namespace tessera::parallel
