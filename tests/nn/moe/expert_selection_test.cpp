#include "nn/moe/expert_selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "base/thread_pool.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::nn {
namespace {

using Method = SelectionRule::Method;
using Weights = SelectionRule::Weights;
using Cores = std::vector<std::vector<uint8_t>>;

Tensor random_logits(int64_t tokens, int64_t experts, uint32_t seed = 5) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw(0, 2);
  std::vector<float> values(static_cast<size_t>(tokens * experts));
  for (float& v : values) v = draw(rng);
  return Tensor::from(std::span<const float>(values), {tokens, experts});
}

ops::RoutingOptions softmax_router() { return {.top_k = 4}; }
ops::RoutingOptions sigmoid_router() {
  return {.score = ops::RoutingOptions::Score::sigmoid,
          .top_k = 4,
          .renormalise = true,
          .scale = 2.5f,
          .groups = 4,
          .top_groups = 2};
}

ops::Routing select(const Tensor& logits, const ops::RoutingOptions& router,
                    const SelectionRule& rule, Cores* cores = nullptr,
                    std::vector<int32_t> groups = {}) {
  if (groups.empty()) groups.assign(static_cast<size_t>(logits.size(0)), 0);
  std::vector<float> importance(groups.size());
  std::iota(importance.begin(), importance.end(), 0.0f);
  return select_experts(
      logits, router, rule,
      {groups, Tensor::from(std::span<const float>(importance), {logits.size(0)})}, cores);
}

void expect_equal(const ops::Routing& a, const ops::Routing& b) {
  EXPECT_EQ(a.ids.to_ints(), b.ids.to_ints());
  EXPECT_EQ(a.weights.to_floats(), b.weights.to_floats());  // bit by bit
}

TEST(ExpertSelection, AllExpertsAreVanillaBitByBit) {
  const Tensor logits = random_logits(40, 32);
  for (const auto& router : {softmax_router(), sigmoid_router()})
    for (Method method : {Method::vote, Method::vote_max, Method::vote_norm4, Method::peak})
      for (Weights weights : {Weights::a, Weights::b, Weights::d})
        expect_equal(
            select(
                logits, router,
                {.method = method, .beta = method == Method::peak ? 0.0 : 1.0, .weights = weights}),
            ops::route(logits, router));
}

// Two tokens: one without preference for experts 0 and 1, the other sure of 2 and of 3.
TEST(ExpertSelection, VotesByScoreCountHowSureARouterIs) {
  const std::vector<float> logits{-1, -2, -9, -9, -9, -9, 2, 1.9f};
  const Tensor two = Tensor::from(std::span<const float>(logits), {2, 4});
  ops::RoutingOptions router = sigmoid_router();
  router.top_k = 2;
  router.groups = router.top_groups = 1;
  const auto core = [&](const std::string& rule) {
    Cores cores;
    select(two, router, parse_selection(rule), &cores);
    return cores.at(0);
  };
  for (const std::string rule : {"des-vote:0.5", "des-max:0.5", "des-norm4:0.5"}) {
    EXPECT_EQ(core(rule), (std::vector<uint8_t>{1, 0, 1, 0})) << rule << ": 0.69 beats 0.48";
    EXPECT_EQ(core(rule + ",votes=score"), (std::vector<uint8_t>{0, 0, 1, 1})) << rule;
  }
  EXPECT_EQ(core("des-peak:0.85,votes=score"), (std::vector<uint8_t>{0, 0, 1, 1}));
  router.renormalise = false;
  EXPECT_THROW(core("des-vote:0.5,votes=score"), Error) << "its votes are scores already";
}

TEST(ExpertSelection, SeqOfAllKIsVanillaForASoftmaxRouter) {
  const Tensor logits = random_logits(40, 64);
  for (Weights weights : {Weights::b, Weights::d})
    expect_equal(
        select(logits, softmax_router(), {.method = Method::seq, .k = 4, .weights = weights}),
        ops::route(logits, softmax_router()));
}

TEST(ExpertSelection, CoresetsAreNestedInBetaAndK) {
  const Tensor logits = random_logits(24, 32);
  for (Method method :
       {Method::vote, Method::vote_max, Method::vote_norm4, Method::peak, Method::seq}) {
    std::vector<uint8_t> before(32);
    for (int step = 1; step <= 8; ++step) {
      Cores cores;
      const double share = double(step) / 8, least = (1 - share) / 4;
      select(logits, softmax_router(),
             {.method = method,
              .k = std::min(step, 4),
              .beta = method == Method::peak ? least : share},
             &cores);
      for (size_t e = 0; e < before.size(); ++e) EXPECT_LE(before[e], cores.at(0)[e]);
      before = cores.at(0);
    }
  }
}

TEST(ExpertSelection, ChosenExpertsLieInTheCoreset) {
  const Tensor logits = random_logits(24, 32);
  for (const auto& router : {softmax_router(), sigmoid_router()})
    for (auto groups : {SelectionRule::Groups::masked, SelectionRule::Groups::vanilla,
                        SelectionRule::Groups::none}) {
      Cores cores;
      const ops::Routing r =
          select(logits, router, {.method = Method::vote, .beta = 0.25, .groups = groups}, &cores);
      EXPECT_EQ(std::count(cores.at(0).begin(), cores.at(0).end(), 1), 8);
      for (int64_t id : r.ids.to_ints())
        EXPECT_TRUE(id < 0 || cores.at(0)[static_cast<size_t>(id)] == 1);
    }
}

TEST(ExpertSelection, SeqOfAllKUnderModeAWeighsMoreThanVanilla) {
  const Tensor logits = random_logits(6, 64);
  const auto made =
      select(logits, softmax_router(), {.method = Method::seq, .k = 4, .weights = Weights::a});
  const auto vanilla = ops::route(logits, softmax_router());
  EXPECT_EQ(made.ids.to_ints(), vanilla.ids.to_ints());
  for (int64_t i = 0; i < 24; ++i)
    EXPECT_GT(made.weights.data<float>()[i], vanilla.weights.data<float>()[i]);
}

TEST(ExpertSelection, ModesAAndDAreOneForASigmoidRouter) {
  const Tensor logits = random_logits(24, 32);
  for (Method method : {Method::vote, Method::vote_max, Method::seq})
    expect_equal(select(logits, sigmoid_router(),
                        {.method = method, .k = 2, .beta = 0.3, .weights = Weights::a}),
                 select(logits, sigmoid_router(),
                        {.method = method, .k = 2, .beta = 0.3, .weights = Weights::d}));
}

TEST(ExpertSelection, ModeBKeepsTheWeightsOfTheVanillaLayer) {
  const Tensor logits = random_logits(24, 32);
  const auto made = select(logits, softmax_router(),
                           {.method = Method::vote, .beta = 0.4, .weights = Weights::b});
  const auto all = ops::route(logits, {.top_k = 32});
  for (int64_t t = 0; t < 24; ++t)
    for (int j = 0; j < 4; ++j) {
      const auto ids = all.ids.slice(0, t, t + 1).to_ints();
      const auto at = std::find(ids.begin(), ids.end(), made.ids.row<int32_t>(t)[j]);
      ASSERT_NE(at, ids.end());
      EXPECT_EQ(made.weights.row<float>(t)[j], all.weights.row<float>(t)[at - ids.begin()]);
    }
}

TEST(ExpertSelection, FewerAreTakenIfTheCoresetHoldsFewer) {
  const Tensor logits = random_logits(12, 32);
  const auto made = select(logits, softmax_router(), {.method = Method::vote, .beta = 3.0 / 32});
  for (int64_t t = 0; t < 12; ++t) {
    EXPECT_GE(made.ids.row<int32_t>(t)[2], 0);
    EXPECT_EQ(made.ids.row<int32_t>(t)[3], -1);
    EXPECT_EQ(made.weights.row<float>(t)[3], 0);
  }
}

TEST(ExpertSelection, GroupTreatmentsOfTheCoreset) {
  // Groups of 8; 2 of 4 are open to a token.
  using Groups = SelectionRule::Groups;
  const Tensor logits = random_logits(40, 32);
  const auto groups_of = [&](Groups groups) {
    const auto made =
        select(logits, sigmoid_router(), {.method = Method::vote, .beta = 0.25, .groups = groups});
    std::vector<std::set<int64_t>> sets;
    for (int64_t t = 0; t < 40; ++t) {
      sets.emplace_back();
      for (int64_t id : made.ids.slice(0, t, t + 1).to_ints())
        if (id >= 0) sets.back().insert(id / 8);
    }
    return sets;
  };
  const auto masked = groups_of(Groups::masked), kept = groups_of(Groups::vanilla),
             none = groups_of(Groups::none);
  bool wider = false;
  for (int64_t t = 0; t < 40; ++t) {
    const auto at = static_cast<size_t>(t);
    EXPECT_LE(masked[at].size(), 2u);
    EXPECT_LE(kept[at].size(), 2u);
    EXPECT_FALSE(masked[at].empty());  // a group without members is closed, others are not
    wider = wider || none[at].size() > 2;
  }
  EXPECT_TRUE(wider);
}

TEST(ExpertSelection, TopKIsTheModelsRouterWithAnotherK) {
  const Tensor logits = random_logits(24, 32);
  for (auto router : {softmax_router(), sigmoid_router()}) {
    const auto made = select(logits, router, {.method = Method::topk, .k = 2});
    router.top_k = 2;
    const auto want = ops::route(logits, router);
    EXPECT_EQ(made.ids.slice(1, 0, 2).contiguous().to_ints(), want.ids.to_ints());
    const auto a = made.weights.slice(1, 0, 2).to_floats(), b = want.weights.to_floats();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6);
    for (int64_t t = 0; t < 24; ++t) EXPECT_EQ(made.ids.row<int32_t>(t)[3], -1);
  }
}

TEST(ExpertSelection, NaeeDropsATailOfLessThanItsShareAndKeepsTheRest) {
  const Tensor logits = random_logits(40, 32);
  const auto vanilla = ops::route(logits, softmax_router());
  const auto made = select(logits, softmax_router(), {.method = Method::naee, .beta = 0.3});
  for (int64_t t = 0; t < 40; ++t) {
    const float *kept = made.weights.row<float>(t), *all = vanilla.weights.row<float>(t);
    const double total = std::accumulate(all, all + 4, 0.0);
    int count = 0;
    while (count < 4 && made.ids.row<int32_t>(t)[count] >= 0) ++count;
    ASSERT_GE(count, 1);
    for (int j = 0; j < count; ++j) EXPECT_EQ(kept[j], all[j]);
    const double tail = std::accumulate(all + count, all + 4, 0.0);
    EXPECT_LT(tail, 0.3 * total);
    EXPECT_TRUE(count == 1 || tail + double(all[count - 1]) >= 0.3 * total);
  }
}

TEST(ExpertSelection, PeakTakesWhatSomeTokenGivesTheWeight) {
  const Tensor logits = Tensor::from(std::span<const float>({9, 0, 0, 0, 1, 1, 0, 0}), {2, 4});
  const ops::RoutingOptions router{.top_k = 2};
  Cores cores;
  select(logits, router, {.method = Method::peak, .beta = 0.3}, &cores);
  EXPECT_EQ(cores.at(0), (std::vector<uint8_t>{1, 1, 0, 0})) << "0.37 of the second token";
  select(logits, router, {.method = Method::peak, .beta = 0.5}, &cores);
  EXPECT_EQ(cores.at(0), (std::vector<uint8_t>{1, 0, 0, 0}));
  select(logits, router, {.method = Method::peak, .beta = 1}, &cores);
  EXPECT_EQ(cores.at(0), (std::vector<uint8_t>{1, 0, 0, 0})) << "the most voted one is left";
}

TEST(ExpertSelection, AGivenCoresetRoutesAsTheOneThatWasVoted) {
  const Tensor logits = random_logits(24, 32);
  const std::vector<int32_t> groups(24, 0);
  for (const auto& router : {softmax_router(), sigmoid_router()})
    for (Weights weights : {Weights::a, Weights::b, Weights::d}) {
      const SelectionRule rule{.method = Method::vote, .beta = 0.3, .weights = weights};
      Cores cores;
      const ops::Routing voted = select(logits, router, rule, &cores);
      expect_equal(route_inside(logits, router, rule, {groups, {}}, cores), voted);
    }
}

TEST(ExpertSelection, TiesAndMissingVotesGoToTheLowestIndex) {
  const Tensor flat = Tensor::zeros({3, 8}, tensor::DType::f32);
  Cores cores;
  select(flat, {.top_k = 2}, {.method = Method::vote, .beta = 0.5}, &cores);
  EXPECT_EQ(cores.at(0), (std::vector<uint8_t>{1, 1, 1, 1, 0, 0, 0, 0}));
}

TEST(ExpertSelection, TheOrderOfVotesCannotChangeACoreset) {
  const int64_t tokens = 200;
  const Tensor logits = random_logits(tokens, 64);
  std::vector<float> reversed;
  for (int64_t t = tokens; t-- > 0;)
    reversed.insert(reversed.end(), logits.row<float>(t), logits.row<float>(t) + 64);
  const Tensor backwards = Tensor::from(std::span<const float>(reversed), {tokens, 64});
  base::ThreadPool pool(3);
  tensor::Scope scope;
  scope.pool = &pool;
  Cores one, many;
  select(logits, softmax_router(), {.method = Method::vote, .beta = 0.3}, &one);
  const tensor::BindScope bind(scope);
  select(backwards, softmax_router(), {.method = Method::vote, .beta = 0.3}, &many);
  EXPECT_EQ(one, many);
}

TEST(ExpertSelection, GroupsOfTokensDoNotSeeEachOther) {
  const Tensor logits = random_logits(20, 32);
  std::vector<int32_t> groups(20, 0);
  std::fill(groups.begin() + 12, groups.end(), 1);
  std::fill(groups.begin(), groups.begin() + 4, -1);  // vanilla
  const SelectionRule rule{.method = Method::vote, .beta = 0.2};
  const ops::Routing all = select(logits, softmax_router(), rule, nullptr, groups);
  const ops::Routing second = select(logits.slice(0, 12, 20).contiguous(), softmax_router(), rule);
  const ops::Routing vanilla = ops::route(logits, softmax_router());
  expect_equal({all.ids.slice(0, 12, 20), all.weights.slice(0, 12, 20)}, second);
  expect_equal({all.ids.slice(0, 0, 4), all.weights.slice(0, 0, 4)},
               {vanilla.ids.slice(0, 0, 4), vanilla.weights.slice(0, 0, 4)});
}

TEST(ExpertSelection, ModeDKeepsTheMassOfTheVanillaChoice) {
  const Tensor logits = random_logits(16, 32);
  const auto kept = select(logits, softmax_router(), {.method = Method::vote, .beta = 0.25});
  const auto vanilla = ops::route(logits, softmax_router());
  for (int64_t t = 0; t < 16; ++t) {
    const float *a = kept.weights.row<float>(t), *b = vanilla.weights.row<float>(t);
    EXPECT_NEAR(std::accumulate(a, a + 4, 0.0f), std::accumulate(b, b + 4, 0.0f), 1e-5);
  }
}

TEST(ExpertSelection, ATokenMayTakeMoreOrFewerThanTheModel) {
  const Tensor logits = random_logits(16, 32);
  const auto more =
      select(logits, softmax_router(), {.method = Method::vote, .beta = 0.5, .take = 6});
  EXPECT_EQ(more.ids.shape(), (tensor::Shape{16, 6}));
  const auto fewer =
      select(logits, softmax_router(), {.method = Method::vote, .beta = 0.5, .take = 2});
  EXPECT_EQ(fewer.ids.row<int32_t>(3)[2], -1);
  EXPECT_EQ(fewer.weights.row<float>(3)[2], 0);
}

TEST(ExpertSelection, McSparesTheImportantAndSilencesTheLeast) {
  const Tensor logits = random_logits(20, 32);  // importance rises with the token
  const auto r =
      select(logits, softmax_router(), {.method = Method::mc, .beta = 1, .low = 0.1, .high = 0.1});
  EXPECT_EQ(r.ids.row<int32_t>(0)[0], -1);
  EXPECT_GE(r.ids.row<int32_t>(2)[0], 0);
  EXPECT_EQ(r.ids.row<int32_t>(2)[1], -1);
  EXPECT_GE(r.ids.row<int32_t>(19)[3], 0);
}

TEST(ExpertSelection, RefusesWhatTheRouterDoesNotHave) {
  EXPECT_THROW(check_selection({.method = Method::topk, .k = 9}, 8, 2), Error);
  try {
    check_selection({.method = Method::vote, .beta = 0.1}, 8, 2);
    FAIL() << "a coreset of no expert was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_NE(std::string(e.what()).find("beta >= 0.125"), std::string::npos);
  }
}

TEST(ExpertSelection, MetaGivesShapes) {
  const Tensor logits = Tensor::empty({5, 16}, tensor::DType::f32, tensor::Device::meta);
  const auto r =
      select_experts(logits, softmax_router(), {.method = Method::vote, .beta = 0.5}, {});
  EXPECT_EQ(r.ids.shape(), (tensor::Shape{5, 4}));
}

}  // namespace
}  // namespace tessera::nn
