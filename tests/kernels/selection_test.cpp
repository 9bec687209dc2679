#include "kernels/selection.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "kernels/selection_problem.h"
#include "kernels/table.h"

namespace tessera::kernels {
namespace {

using tensor::Tensor;

TEST(ExpertVotes, AreSumsOrMaximaOfTheChosenWeights) {
  // Two tokens of group 0 with scores 1/4 and 3/4, a token of group 1, and a token without a group.
  const float one = 0, three = std::log(3.0f);
  const std::vector<float> logits{one, three, three, one, one, three, one, three};
  SelectionProblem p({.top_k = 1}, 4, 2);
  std::copy(logits.begin(), logits.end(), p.logits.data<float>());
  p.group_of = {0, 0, 1, -1};
  for (Isa isa : available_isas()) {
    const Choice c = p.choose(cpu_table(isa));
    const auto near = [&](const Tensor& votes, const std::vector<double>& want) {
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_NEAR(double(votes.data<int64_t>()[i]) / kVoteUnit, want[i], 1e-7) << i;
    };
    near(c.votes[0], {0.75, 0.75, 0, 0.75});
    near(c.votes[1], {0.75, 0.75, 0, 0.75});
    near(c.votes[2], {0.31640625, 0.31640625, 0, 0.31640625});
    EXPECT_EQ(c.votes[3].to_ints(), (std::vector<int64_t>{1, 1, 0, 1})) << "presence";
    for (int64_t g = 0; g < 2; ++g)
      for (int64_t e = 0; e < 2;
           ++e) {  // logits of every expert, chosen or not: a softmax ranks by logits
        float most = -INFINITY;
        for (size_t t = 0; t < 4; ++t)
          if (p.group_of[t] == g) most = std::max(most, logits[t * 2 + size_t(e)]);
        EXPECT_EQ(c.votes[4].data<int64_t>()[g * 2 + e], vote_of_rank(most));
      }
  }
}

TEST(ExpertVotes, ARankIsAVoteThatComparesAlike) {
  const float rising[] = {-INFINITY, -2, -1e-40f, 0, 1e-40f, 0.5f, 0.50000006f, 3e38f, INFINITY};
  for (size_t i = 1; i < std::size(rising); ++i)
    EXPECT_LT(vote_of_rank(rising[i - 1]), vote_of_rank(rising[i])) << i;
  EXPECT_EQ(vote_of_rank(-0.0f), vote_of_rank(0.0f));
  EXPECT_GE(vote_of_rank(-INFINITY), 0);
}

TEST(ExpertVotes, OfManyTokensAreTheSameOnEveryInstructionSet) {
  for (const RouteArgs& rule : kRouters) {
    const SelectionProblem p(rule, 300, 64);
    const Choice want = p.choose(cpu_table(Isa::reference));
    for (Isa isa : available_isas()) {
      const Choice got = p.choose(cpu_table(isa));
      for (size_t v = 0; v < got.votes.size(); ++v)
        for (int64_t i = 0; i < got.votes[v].elements(); ++i)
          EXPECT_NEAR(double(got.votes[v].data<int64_t>()[i]),
                      double(want.votes[v].data<int64_t>()[i]), 300);
    }
  }
}

// The definition: an expert beaten by fewer than `count` others, or at or above the bar.
TEST(Coresets, AreThoseOfTheirDefinition) {
  const Tensor drawn = random_tensor({3, 256}, tensor::DType::f32, 4);
  std::vector<int64_t> votes;
  for (const float v : drawn.to_floats()) votes.push_back(std::llround(10 * std::abs(v)));
  std::vector<uint8_t> cores(votes.size());
  for (const int64_t experts : {1, 6, 255, 256})
    for (const int64_t count : {int64_t{0}, int64_t{1}, experts / 3, experts, experts + 5})
      for (const int64_t bar : {int64_t{9}, int64_t{1} << 62}) {
        cpu_table(Isa::reference).coresets({votes.data(), 3, experts, count, bar, cores.data()});
        for (int64_t g = 0; g < 3; ++g)
          for (int64_t e = 0; e < experts; ++e) {
            const int64_t* all = votes.data() + g * experts;
            int64_t better = 0;
            for (int64_t f = 0; f < experts; ++f)
              better += all[f] > all[e] || (all[f] == all[e] && f < e);
            ASSERT_EQ(cores[size_t(g * experts + e)], better < count || all[e] >= bar) << e;
          }
      }
}

TEST(Coresets, HoldTheMostVotedAndThoseOverTheBar) {
  const std::vector<int64_t> votes{5, 9, 5, 0, 0, 0, 0, 0};
  std::vector<uint8_t> cores(8);
  for (Isa isa : available_isas()) {
    const auto made = [&](int64_t count, int64_t bar) {
      cpu_table(isa).coresets({votes.data(), 2, 4, count, bar, cores.data()});
      return std::vector<int>(cores.begin(), cores.end());
    };
    const int64_t none = int64_t{1} << 62;
    EXPECT_EQ(made(2, none), (std::vector<int>{1, 1, 0, 0, 1, 1, 0, 0})) << "ties: the lowest";
    EXPECT_EQ(made(0, 5), (std::vector<int>{1, 1, 1, 0, 0, 0, 0, 0}));
    EXPECT_EQ(made(1, 5), (std::vector<int>{1, 1, 1, 0, 1, 0, 0, 0}));
  }
}

TEST(ChooseInside, EqualsTheReferenceOnEveryInstructionSet) {
  for (const RouteArgs& rule : kRouters)
    for (const InsideRule& inside : kInsideRules) {
      const SelectionProblem p(rule, 70, 40);
      const Choice want = p.choose(cpu_table(Isa::reference), inside);
      for (Isa isa : available_isas()) {
        const Choice got = p.choose(cpu_table(isa), inside);
        EXPECT_EQ(got.ids.to_ints(), want.ids.to_ints());
        for (int64_t i = 0; i < got.weights.elements(); ++i)
          EXPECT_NEAR(got.weights.data<float>()[i], want.weights.data<float>()[i], 1e-6);
      }
    }
}

TEST(ChooseInside, TakesFromTheCoresetAndLeavesOtherTokensAlone) {
  const SelectionProblem p(kRouters[0], 40, 32);
  const Choice c = p.choose(cpu_table());
  const int slots = SelectionProblem::kSlots;
  for (int64_t t = 0; t < 40; ++t) {
    const int32_t group = p.group_of[size_t(t)];
    for (int j = 0; j < slots; ++j) {
      const int32_t id = c.ids.row<int32_t>(t)[j];
      if (group >= 0 && id >= 0) {
        EXPECT_EQ(c.cores.row<uint8_t>(group)[id], 1);
      }
      if (group < 0) {
        EXPECT_EQ(id, j < 4 ? c.vanilla.row<int32_t>(t)[j] : -1);
      }
      EXPECT_TRUE(id >= 0 || c.weights.row<float>(t)[j] == 0);
    }
  }
}

TEST(Magnitudes, AreSumsInTheOrderOfColumns) {
  const std::vector<float> x{1, -2, 9, 0x1p24f, -1, 9};  // a third column outside of the rows
  std::vector<float> sums(2);
  for (Isa isa : available_isas()) {
    cpu_table(isa).magnitudes(
        {.x = x.data(), .stride = 3, .rows = 2, .columns = 2, .sums = sums.data()});
    EXPECT_EQ(sums, (std::vector<float>{3, 0x1p24f}));
  }
}

TEST(TokenFates, MarkTheShareOfEachGroup) {
  const std::vector<float> x{5, 1, 1, 9, 9, 7, 3, 2};
  const std::vector<int32_t> group_of{0, 0, 0, 0, 1, 1, -1, 0};
  std::vector<int8_t> fates(8, 55);
  for (Isa isa : available_isas()) {
    cpu_table(isa).token_fates({x.data(), group_of.data(), 8, 2, 0.5, 0.25, fates.data()});
    // With five tokens two go and one is spared; with two tokens one goes and none is spared.
    EXPECT_EQ(std::vector<int>(fates.begin(), fates.end()),
              (std::vector<int>{0, -1, -1, 1, 0, -1, 0, 0}));
  }
}

TEST(DropTail, KeepsTheBestAndWhatTheShareWants) {
  std::vector<int32_t> ids{4, 1, -1, 7, 2, 0, 3, 2, 0, 3, 2, 0};
  std::vector<float> weights{0.1f, 0.6f, 0, 0.5f, 0.5f, 0, 0.2f, 0.3f, 0.5f, 0.2f, 0.3f, 0.5f};
  const std::vector<int32_t> group_of{0, 0, 0, -1};
  const std::vector<int8_t> fates{0, 0, -1, -1};
  cpu_table().drop_tail({.group_of = group_of.data(),
                         .fates = fates.data(),
                         .tokens = 4,
                         .slots = 3,
                         .beta = 0.2,
                         .renormalise = true,
                         .full = 2,
                         .ids = ids.data(),
                         .weights = weights.data()});
  EXPECT_EQ(ids, (std::vector<int32_t>{1, -1, -1, 2, 7, -1, -1, -1, -1, 3, 2, 0}))
      << "equal weights fall by their experts";
  EXPECT_FLOAT_EQ(weights[0], 2);
  EXPECT_FLOAT_EQ(weights[3], 1);
  EXPECT_EQ(weights[6], 0);
  EXPECT_FLOAT_EQ(weights[9], 0.2f);
}

}  // namespace
}  // namespace tessera::kernels
