#include "ops/selection.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::ops {
namespace {

const Tensor kLogits = Tensor::from(std::span<const float>({4, 3, 0, 0, 0, 2, 3, 0}), {2, 4});
const RoutingOptions kRouter{.top_k = 2};
const std::vector<int32_t> kOne{0, 0};

TEST(Selection, VotesMakeACoresetAndTokensChooseInsideIt) {
  InsideChoice choice{.vanilla = {}, .scores = {}, .cores = {}, .rule = {}, .slots = 3};
  choice.vanilla = route(kLogits, kRouter, &choice.scores);
  const Tensor votes =
      expert_votes(kLogits, kRouter, choice.vanilla.ids, {kOne, 1}, VoteOf::weight, false);
  EXPECT_EQ(votes.to_ints()[3], 0) << "nobody's choice";
  choice.cores = coresets(votes, 1, int64_t{1} << 62);
  EXPECT_EQ(choice.cores.data<uint8_t>()[0] + choice.cores.data<uint8_t>()[2], 1);
  choice.rule.take = 2;
  const Routing made = choose_inside(kLogits, kRouter, {kOne, 1}, choice);
  EXPECT_EQ(made.ids.shape(), (tensor::Shape{2, 3}));
  EXPECT_EQ(made.ids.row<int32_t>(0)[0], made.ids.row<int32_t>(1)[0]);
  EXPECT_EQ(made.ids.row<int32_t>(0)[1], -1) << "one expert is all there is";
}

TEST(Selection, TwoStepsEqualFive) {
  RoutingOptions voter = kRouter;
  voter.renormalise = true;
  InsideChoice five{.vanilla = {}, .scores = {}, .cores = {}, .rule = {.take = 2}, .slots = 3};
  InsideChoice two = five;
  five.vanilla = route(kLogits, kRouter, &five.scores);
  const Tensor votes =
      expert_votes(kLogits, voter, five.vanilla.ids, {kOne, 1}, VoteOf::weight, false);
  five.cores = coresets(votes, 2, int64_t{1} << 62);
  two.vanilla = route_and_vote(kLogits, kRouter, voter, {kOne, 1}, VoteOf::weight, false,
                               two.scores, two.votes);
  two.count = 2, two.bar = int64_t{1} << 62;
  EXPECT_EQ(two.vanilla.ids.to_ints(), five.vanilla.ids.to_ints());
  EXPECT_EQ(two.vanilla.weights.to_floats(), five.vanilla.weights.to_floats());
  EXPECT_EQ(two.scores.to_floats(), five.scores.to_floats());
  EXPECT_EQ(two.votes.to_ints(), votes.to_ints());
  const Routing want = choose_inside(kLogits, kRouter, {kOne, 1}, five),
                got = choose_inside(kLogits, kRouter, {kOne, 1}, two);
  EXPECT_EQ(got.ids.to_ints(), want.ids.to_ints());
  EXPECT_EQ(got.weights.to_floats(), want.weights.to_floats());
  const Tensor none = kLogits.slice(0, 0, 0);
  EXPECT_EQ(
      route_and_vote(none, kRouter, voter, {{}, 1}, VoteOf::weight, false, two.scores, two.votes)
          .ids.size(0),
      0);
  EXPECT_EQ(two.votes.to_ints(), (std::vector<int64_t>{0, 0, 0, 0}));
}

TEST(Selection, RefusesWhatDoesNotFit) {
  const Routing vanilla = route(kLogits, kRouter);
  const std::vector<int32_t> far{0, 5};
  EXPECT_THROW(expert_votes(kLogits, kRouter, vanilla.ids, {far, 1}, VoteOf::weight, false), Error);
  EXPECT_THROW(expert_votes(kLogits, {.top_k = 3}, vanilla.ids, {kOne, 1}, VoteOf::weight, false),
               Error);
  EXPECT_THROW(coresets(vanilla.ids, 1, 1), Error);
  Tensor scores, votes;
  EXPECT_THROW(route_and_vote(kLogits, kRouter, {.top_k = 1}, {kOne, 1}, VoteOf::weight, false,
                              scores, votes),
               Error);
  EXPECT_THROW(token_fates(Tensor::zeros({3}, DType::f32), {kOne, 1}, 0, 0), Error);
  EXPECT_THROW(choose_inside(kLogits, kRouter, {kOne, 1}, {vanilla, {}, {}, {}, 1}), Error);
}

TEST(Selection, MetaGivesShapes) {
  const Tensor logits = Tensor::empty({5, 8}, DType::f32, tensor::Device::meta);
  InsideChoice choice{.vanilla = {}, .scores = {}, .cores = {}, .rule = {}, .slots = 4};
  choice.vanilla = route(logits, kRouter, &choice.scores);
  EXPECT_EQ(choice.scores.shape(), logits.shape());
  const Tensor votes =
      expert_votes(logits, kRouter, choice.vanilla.ids, {{}, 2}, VoteOf::weight, true);
  Tensor counted;
  EXPECT_EQ(route_and_vote(logits, kRouter, kRouter, {{}, 2}, VoteOf::weight, true, choice.scores,
                           counted)
                .ids.shape(),
            (tensor::Shape{5, 2}));
  EXPECT_EQ(counted.shape(), votes.shape());
  EXPECT_EQ(coresets(votes, 1, 1).shape(), (tensor::Shape{2, 8}));
  EXPECT_EQ(choose_inside(logits, kRouter, {{}, 2}, choice).ids.shape(), (tensor::Shape{5, 4}));
  EXPECT_EQ(magnitudes(logits).shape(), (tensor::Shape{5}));
  drop_tail(choice.vanilla, {}, {}, {});
}

}  // namespace
}  // namespace tessera::ops
