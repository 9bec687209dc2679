#include "kernels/cuda/leg.h"
// Include leg.h first: the sources below depend on the leg.
#include <gtest/gtest.h>

#include "kernels/closeness.h"
#include "kernels/routing.h"
#include "kernels/selection_problem.h"
#include "tensor/launches.h"
#if !defined(TESSERA_ON_GPU)
#include "kernels/cuda/selection.cu"
#endif

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

KernelTable there() {
  KernelTable t;
  t.route = cuda::route;
  t.expert_votes = cuda::expert_votes;
  t.coresets = cuda::coresets;
  t.choose_inside = cuda::choose_inside;
  return t;
}

Choice on_device(const SelectionProblem& p, const InsideRule& rule) {
  return p.choose(there(), rule, kThere);
}

void expect_equal(const Choice& got, const Choice& want, double tokens) {
  EXPECT_EQ(got.vanilla.to_ints(), want.vanilla.to_ints());
  for (size_t v = 0; v < got.votes.size(); ++v)
    for (int64_t i = 0; i < got.votes[v].elements(); ++i)
      EXPECT_NEAR(double(got.votes[v].data<int64_t>()[i]), double(want.votes[v].data<int64_t>()[i]),
                  tokens);
  EXPECT_TRUE(same_bits(got.cores, want.cores));
  EXPECT_EQ(got.ids.to_ints(), want.ids.to_ints());
  EXPECT_LT(worst_difference(got.weights, want.weights), 2e-6);
}

TEST(CudaSelection, EqualsTheReference) {
  for (const RouteArgs& router : kRouters)
    for (const InsideRule& rule : kInsideRules)
      for (int64_t experts : {8, 40, 64})
        for (int64_t tokens : problems<int64_t>({23}, {2000})) {
          const SelectionProblem p(router, tokens, experts);
          expect_equal(on_device(p, rule), p.choose(cpu_table(Isa::reference), rule),
                       double(tokens));
        }
}

// Ids and weights of the five launches bit by bit: route, votes, coresets and choice in two.
TEST(CudaSelection, TwoLaunchesEqualFive) {
  for (const RouteArgs& router : kRouters)
    for (const InsideRule& rule : kInsideRules)
      for (int64_t experts : {8, 40, 64})
        for (int64_t tokens : problems<int64_t>({0, 1, 23}, {2000})) {
          const SelectionProblem p(router, tokens, experts);
          const Choice five = on_device(p, rule);
          tensor::Scope scope;
          scope.meter = std::make_shared<tensor::Meter>();
          const auto two = [&] { return p.choose_in_two(there(), rule, kThere); };
          const Choice got = [&] {
            const tensor::BindScope bind(scope);
            return two();
          }();
          EXPECT_TRUE(same_bits(got.vanilla, five.vanilla));
          EXPECT_TRUE(same_bits(got.votes[0], five.votes[0]));
          EXPECT_TRUE(same_bits(got.ids, five.ids));
          EXPECT_TRUE(same_bits(got.weights, five.weights));
          EXPECT_EQ(got.ids.to_ints(),
                    p.choose_in_two(cpu_table(Isa::reference), rule).ids.to_ints());
          EXPECT_TRUE(same_bits(again(two).weights, five.weights));
          const std::map<std::string, int64_t> once{{"choose_inside", 1}, {"expert_votes", 1}};
          EXPECT_TRUE(tokens == 0 || tensor::launches_of(scope.meter->entries()) == once);
        }
}

TEST(CudaSelection, TheOrderOfThreadsDoesNotMatterAndZeroTokensAreLegal) {
  on_device(SelectionProblem(kRouters[0], 0, 16), kInsideRules[0]);
  const SelectionProblem p(kRouters[2], 30, 64);
  const auto once = [&] { return on_device(p, kInsideRules[0]); };
  const Choice one = once(), other = again(once);
  for (size_t v = 0; v < one.votes.size(); ++v)
    EXPECT_TRUE(same_bits(one.votes[v], other.votes[v]));
  EXPECT_TRUE(same_bits(one.ids, other.ids) && same_bits(one.weights, other.weights));
}

TEST(CudaSelection, ATokenOfNoGroupAndOneOfAFullCoresetKeepTheRouters) {
  SelectionProblem p(kRouters[1], 12, 16);
  std::fill(p.group_of.begin(), p.group_of.end(), -1);
  const Choice c = on_device(p, kInsideRules[1]);
  for (int64_t t = 0; t < 12; ++t)
    for (int j = 0; j < 4; ++j) EXPECT_EQ(c.ids.row<int32_t>(t)[j], c.vanilla.row<int32_t>(t)[j]);
}

Tensor magnitudes(void (*kernel)(const MagnitudesArgs&), const Where& at, const Tensor& x) {
  const Tensor given = at(x), sums = Tensor::empty({x.size(0)}, DType::f32, at.device);
  kernel({.x = given.raw(),
          .dtype = x.dtype(),
          .stride = x.size(1),
          .rows = x.size(0),
          .columns = x.size(1) - 1,
          .sums = sums.data<float>()});
  return here(sums);
}

TEST(CudaMagnitudes, AreThoseOfTheReferenceBitByBit) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = random_tensor({37, 50}, dtype, 4);
    EXPECT_TRUE(same_bits(magnitudes(cuda::magnitudes, kThere, x),
                          magnitudes(reference::magnitudes, kHost, x)));
  }
}

Tensor fates(void (*kernel)(const FatesArgs&), const Where& at, const std::vector<float>& x,
             const std::vector<int32_t>& group_of) {
  const Tensor given = at(x), groups = at(group_of);
  const auto tokens = static_cast<int64_t>(x.size());
  const Tensor made = Tensor::empty({tokens}, DType::i8, at.device);
  kernel({.importance = static_cast<const float*>(given.raw()),
          .group_of = static_cast<const int32_t*>(groups.raw()),
          .tokens = tokens,
          .groups = 3,
          .low = 0.3,
          .high = 0.2,
          .fates = made.data<int8_t>()});
  return here(made);
}

TEST(CudaFates, AreThoseOfTheReference) {
  std::vector<float> x;
  std::vector<int32_t> group_of;
  for (int t = 0; t < 77; ++t) {
    x.push_back(float(t * 29 % 13));  // ties
    group_of.push_back(t % 7 == 6 ? -1 : t % 3);
  }
  EXPECT_TRUE(same_bits(fates(cuda::token_fates, kThere, x, group_of),
                        fates(reference::token_fates, kHost, x, group_of)));
}

struct Tail {
  Tensor ids, weights;
};
Tail dropped(void (*kernel)(const TailArgs&), const Where& at, bool renormalise) {
  constexpr int64_t kTokens = 45, kSlots = 5;
  std::vector<int32_t> group_of, ids;
  std::vector<int8_t> fates;
  std::vector<float> weights;
  for (int t = 0; t < kTokens; ++t) {
    group_of.push_back(t % 6 == 5 ? -1 : 0);
    fates.push_back(static_cast<int8_t>(t % 4 - 1 > 1 ? 0 : t % 4 - 1));
    for (int j = 0; j < kSlots; ++j) {
      ids.push_back((t + j) % 9 == 0 ? -1 : (t * 3 + j) % 16);
      weights.push_back(float((t * 5 + j * 7) % 4) / 8);
    }
  }
  const Tensor groups = at(group_of), marks = at(fates);
  const Tensor i = at(Tensor::from(std::span<const int32_t>(ids), {kTokens, kSlots}).contiguous()),
               w = at(Tensor::from(std::span<const float>(weights), {kTokens, kSlots}));
  kernel({.group_of = static_cast<const int32_t*>(groups.raw()),
          .fates = static_cast<const int8_t*>(marks.raw()),
          .tokens = kTokens,
          .slots = kSlots,
          .beta = 0.3,
          .renormalise = renormalise,
          .full = 2.5f,
          .ids = i.data<int32_t>(),
          .weights = w.data<float>()});
  return {here(i), here(w)};
}

TEST(CudaDropTail, IsThatOfTheReferenceBitByBit) {
  for (bool renormalise : {false, true}) {
    const Tail got = dropped(cuda::drop_tail, kThere, renormalise),
               want = dropped(reference::drop_tail, kHost, renormalise);
    EXPECT_EQ(got.ids.to_ints(), want.ids.to_ints());
    EXPECT_TRUE(same_bits(got.weights, want.weights));
  }
}

}  // namespace
}  // namespace tessera::kernels
