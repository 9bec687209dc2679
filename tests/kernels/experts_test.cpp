#include "kernels/experts.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/closeness.h"
#include "kernels/experts_layer.h"
#include "kernels/matmul.h"
#include "kernels/table.h"
#include "tensor/scope.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

std::vector<int32_t> random_ids(int64_t tokens, int64_t slots, int experts, bool holes) {
  std::mt19937 generator(9);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens * slots; ++i)
    ids.push_back(static_cast<int32_t>(generator() % static_cast<unsigned>(experts)) -
                  (holes && generator() % 5 == 0 ? experts : 0));
  for (int32_t& id : ids) id = std::max(id, -1);
  return ids;
}

TEST(Experts, EqualTheReferenceOnEveryInstructionSet) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (auto [tokens, hidden, inner, experts, slots] : {std::array<int, 5>{0, 32, 32, 2, 1},
                                                         {1, 32, 32, 2, 1},
                                                         {23, 70, 50, 5, 2},
                                                         {40, 64, 96, 4, 3},
                                                         {90, 33, 40, 2, 1},
                                                         {17, 64, 33, 40, 2}}) {
      const Tensor x = random_tensor({tokens, hidden}, dtype, 77);
      const std::vector<int32_t> ids = random_ids(tokens, slots, experts, true);
      const Tensor want = Layer(hidden, inner, experts, dtype, Isa::reference).run(x, ids);
      for (Isa isa : available_isas()) {
        const Tensor got = Layer(hidden, inner, experts, dtype, isa).run(x, ids);
        EXPECT_LT(relative_l2(got, want), dtype == DType::f32 ? 1e-6 : 3e-3)
            << name_of(isa) << " " << tokens << " tokens " << hidden << "x" << inner;
        const std::vector<float> values = got.to_floats();
        for (size_t i = 0; i < values.size(); ++i) {
          if (ids[i / static_cast<size_t>(hidden)] < 0) {
            ASSERT_EQ(values[i], 0.0f);
          }
        }
      }
    }
}

TEST(Experts, Int8WeightsEqualTheReferenceOnEveryInstructionSet) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (auto [tokens, hidden, inner, experts, slots] : {std::array<int, 5>{0, 32, 32, 2, 1},
                                                         {1, 32, 32, 2, 1},
                                                         {23, 70, 50, 5, 2},
                                                         {90, 33, 40, 2, 1},
                                                         {130, 64, 80, 2, 1},
                                                         {17, 64, 33, 40, 2}}) {
      const Tensor x = random_tensor({tokens, hidden}, dtype, 77);
      const std::vector<int32_t> ids = random_ids(tokens, slots, experts, true);
      const Tensor want = Layer(hidden, inner, experts, DType::i8, Isa::reference).run(x, ids);
      for (Isa isa : available_isas())
        EXPECT_LT(relative_l2(Layer(hidden, inner, experts, DType::i8, isa).run(x, ids), want),
                  dtype == DType::f32 ? 1e-6 : 3e-3)
            << name_of(isa) << " " << tokens << " tokens " << hidden << "x" << inner;
      if (tokens == 0) continue;
      const Tensor whole = Layer(hidden, inner, experts, DType::bf16, Isa::reference).run(x, ids);
      EXPECT_LT(relative_l2(want, whole), 0.02);
    }
}

// |sum x (w - q s)| <= s / 2 * sum |x|, column by column.
TEST(Experts, Int8ProductsStayWithinTheBoundOfTheirScales) {
  const int64_t n = 50, k = 96, rows = 9;
  const Tensor w = random_tensor({n, k}, DType::f32, 1),
               x = random_tensor({rows, k}, DType::f32, 2);
  for (Isa isa : available_isas()) {
    if (isa == Isa::avx2) continue;  // takes the reference for experts, and has no such product
    const PackedWeight exact = pack_weight(w, {}, DType::f32, isa);
    const PackedWeight small = pack_weight(w, {}, DType::i8, isa);
    Tensor want = Tensor::empty({rows, n}, DType::f32), got = Tensor::empty({rows, n}, DType::f32);
    for (const auto& one : {std::pair{&exact, &want}, {&small, &got}})
      cpu_table(isa).matmul({.x = x.raw(),
                             .x_dtype = DType::f32,
                             .x_stride = k,
                             .rows = rows,
                             .weight = one.first,
                             .epilogue = {},
                             .y = one.second->raw(),
                             .y_dtype = DType::f32,
                             .y_stride = n});
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += std::fabs(x.row<float>(r)[i]);
      for (int64_t c = 0; c < n; ++c)
        EXPECT_LE(std::fabs(got.row<float>(r)[c] - want.row<float>(r)[c]),
                  0.501 * small.scales.data<float>()[c] * sum);
    }
  }
}

TEST(Experts, AllTokensOnOneExpertEqualTheReference) {
  const Tensor x = random_tensor({50, 48}, DType::bf16, 5);
  const std::vector<int32_t> ids(50, 2);
  const Tensor want = Layer(48, 80, 4, DType::bf16, Isa::reference).run(x, ids);
  for (Isa isa : available_isas())
    EXPECT_LT(relative_l2(Layer(48, 80, 4, DType::bf16, isa).run(x, ids), want), 3e-3);
}

TEST(Experts, ARowDoesNotDependOnOtherTokensOrThreads) {
  for (Isa isa : available_isas()) {
    if (isa == Isa::avx2) continue;  // library products are outside the row rule
    const int64_t tokens = isa == Isa::reference ? 12 : 120;
    for (DType dtype : {DType::f32, DType::bf16, DType::i8}) {
      const Layer layer(96, 200, 3, dtype, isa);
      const Tensor x = random_tensor({tokens, 96}, dtype == DType::i8 ? DType::bf16 : dtype, 5);
      const std::vector<int32_t> ids = random_ids(tokens, 2, 3, false);
      const Tensor all = layer.run(x, ids);
      auto same = [&](const Tensor& part, int64_t token) {
        const Tensor want = all.slice(0, 2 * token, 2 * token + part.size(0));
        return std::memcmp(part.raw(), want.raw(), static_cast<size_t>(part.bytes())) == 0;
      };
      for (int64_t t = 0; t < tokens; t += 5)
        EXPECT_TRUE(same(
            layer.run(x.slice(0, t, t + 1), {ids.begin() + 2 * t, ids.begin() + 2 * t + 2}), t));
      EXPECT_TRUE(same(layer.run(x.slice(0, 3, 10), {ids.begin() + 6, ids.begin() + 20}), 3));
      for (int threads : {2, 3}) {
        base::ThreadPool pool(threads);
        tensor::Scope threaded;
        threaded.pool = &pool;
        const tensor::BindScope scope(threaded);
        EXPECT_TRUE(same(layer.run(x, ids), 0)) << name_of(isa) << " " << threads;
      }
    }
  }
}

TEST(Experts, CombineSumsInSlotOrder) {
  for (Isa isa : available_isas())
    for (DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (int64_t hidden : {1, 16, 53}) {
        const int64_t tokens = 7, slots = 3;
        const Tensor rows = random_tensor({tokens * slots, hidden}, dtype, 1);
        const Tensor weights = random_tensor({tokens, slots}, DType::f32, 2);
        const Tensor shared = random_tensor({tokens, hidden}, dtype, 3);
        Tensor want = Tensor::empty({tokens, hidden}, dtype),
               got = Tensor::empty({tokens, hidden}, dtype);
        for (bool with : {false, true}) {
          CombineArgs args{.rows = rows.raw(),
                           .dtype = dtype,
                           .row_stride = hidden,
                           .tokens = tokens,
                           .slots = slots,
                           .hidden = hidden,
                           .weights = weights.data<float>(),
                           .shared = with ? shared.raw() : nullptr,
                           .shared_stride = hidden,
                           .y = want.raw()};
          reference::combine(args);
          args.y = got.raw();
          cpu_table(isa).combine(args);
          EXPECT_LT(relative_l2(got, want), dtype == DType::f32 ? 1e-6 : 3e-3) << name_of(isa);
        }
      }
}

TEST(Experts, GroupsAreStable) {
  const std::vector<int32_t> ids = {2, 0, -1, 2, 0, 0};
  const ExpertGroups groups =
      group_by_expert({.tokens = 3, .slots = 2, .ids = ids.data(), .experts = 4});
  EXPECT_EQ(groups.begin, (std::vector<int64_t>{0, 3, 3, 5, 5}));
  EXPECT_EQ(groups.pair, (std::vector<int32_t>{1, 4, 5, 0, 3}));
}

}  // namespace
}  // namespace tessera::kernels
