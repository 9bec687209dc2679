#include "kernels/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/avx2/product.h"
#include "kernels/avx512/product.h"
#include "kernels/bf16_path.h"
#include "kernels/closeness.h"
#include "kernels/experts_layer.h"
#include "kernels/matmul.h"
#include "kernels/scratch.h"
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
                  dtype == DType::f32 ? 1e-4 : 3e-3)
            << name_of(isa) << " " << tokens << " tokens " << hidden << "x" << inner;
      if (tokens == 0) continue;
      const Tensor whole = Layer(hidden, inner, experts, DType::bf16, Isa::reference).run(x, ids);
      EXPECT_LT(relative_l2(want, whole), 0.02);
    }
}

TEST(Experts, NibblesEqualTheReferenceOnEveryInstructionSet) {
  for (DType dtype : {DType::f32, DType::bf16})
    for (auto [tokens, hidden, inner, experts, slots] : {std::array<int, 5>{0, 32, 32, 2, 1},
                                                         {1, 32, 32, 2, 1},
                                                         {23, 70, 50, 5, 2},
                                                         {90, 34, 40, 2, 1},
                                                         {130, 64, 80, 2, 1},
                                                         {17, 128, 16, 40, 2}}) {
      const Tensor x = random_tensor({tokens, hidden}, dtype, 77);
      const std::vector<int32_t> ids = random_ids(tokens, slots, experts, true);
      const Tensor want = Layer(hidden, inner, experts, DType::u8, Isa::reference).run(x, ids);
      Tensor of_vectors;
      for (Isa isa : available_isas()) {
        const Tensor got = Layer(hidden, inner, experts, DType::u8, isa).run(x, ids);
        EXPECT_LT(relative_l2(got, want), dtype == DType::f32 ? 1e-4 : 3e-3)
            << name_of(isa) << " " << tokens << " tokens " << hidden << "x" << inner;
        if (isa == Isa::reference) continue;
        if (!of_vectors.defined()) of_vectors = got;
        EXPECT_LT(relative_l2(got, of_vectors), dtype == DType::f32 ? 1e-5 : 3e-3);
      }
      if (tokens == 0) continue;
      const Tensor whole = Layer(hidden, inner, experts, DType::bf16, Isa::reference).run(x, ids);
      EXPECT_LT(relative_l2(want, whole), 0.25);
      EXPECT_GT(relative_l2(want, whole), 0.02);
    }
}

// |sum x (w - q s)| <= s / 2 * sum |x|, column by column.
TEST(Experts, Int8ProductsStayWithinTheBoundOfTheirScales) {
  const int64_t n = 50, k = 96, rows = 9;
  const Tensor w = random_tensor({n, k}, DType::f32, 1),
               x = random_tensor({rows, k}, DType::bf16, 2);
  for (Isa isa : available_isas()) {
    const PackedWeight exact = pack_weight(w, {}, DType::f32, isa);
    const PackedWeight small = pack_weight(w, {}, DType::i8, isa);
    Tensor want = Tensor::empty({rows, n}, DType::f32), got = Tensor::empty({rows, n}, DType::f32);
    for (const auto& one : {std::pair{&exact, &want}, {&small, &got}})
      cpu_table(isa).matmul({.x = x.raw(),
                             .x_dtype = DType::bf16,
                             .x_stride = k,
                             .rows = rows,
                             .weight = one.first,
                             .epilogue = {},
                             .y = one.second->raw(),
                             .y_dtype = DType::f32,
                             .y_stride = n});
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i) sum += std::fabs(x.to_floats()[size_t(r * k + i)]);
      for (int64_t c = 0; c < n; ++c)
        EXPECT_LE(std::fabs(got.row<float>(r)[c] - want.row<float>(r)[c]),
                  0.501 * small.scales.data<float>()[c] * sum);
    }
  }
}

constexpr Activation kActivations[] = {
    Activation::none,       Activation::silu, Activation::gelu_tanh, Activation::gelu_erf,
    Activation::quick_gelu, Activation::relu, Activation::swiglu,    Activation::geglu};

// The reference itself: down(act(up x + b)) + b' in f64, weights as they are.
TEST(Experts, TheReferenceIsTheFormulaOfEveryActivationWithAndWithoutBiases) {
  constexpr int64_t kHidden = 9, kInner = 7, kTokens = 5;
  const Tensor x = random_tensor({kTokens, kHidden}, DType::f32, 3);
  for (Activation act : kActivations)
    for (bool biased : {false, true}) {
      const Layer layer(kHidden, kInner, 2, DType::f32, Isa::reference, act, biased);
      const std::vector<int32_t> ids = {1, 0, 1, 1, 0};
      const Tensor got = layer.run(x, ids);
      for (int64_t t = 0; t < kTokens; ++t) {
        const auto e = static_cast<size_t>(ids[static_cast<size_t>(t)]);
        const Tensor &up = layer.weights[2 * e].data, &down = layer.weights[2 * e + 1].data;
        const auto product = [&](const Tensor& w, int64_t row, const auto* values, int64_t k) {
          double sum = 0;
          for (int64_t i = 0; i < k; ++i) sum += double{w.row<float>(row)[i]} * double(values[i]);
          return sum;
        };
        std::vector<double> inner;
        for (int64_t i = 0; i < kInner; ++i) {
          double a = product(up, i, x.row<float>(t), kHidden);
          if (!layer.up_biases.empty()) a += double{layer.up_biases[e].data<float>()[i]};
          const double pi = 3.14159265358979323846, gate = 1 / (1 + std::exp(-a));
          switch (act) {
            case Activation::none: break;
            case Activation::silu: a *= gate; break;
            case Activation::gelu_tanh:
              a *= (1 + std::tanh(std::sqrt(2 / pi) * (a + 0.044715 * a * a * a))) / 2;
              break;
            case Activation::gelu_erf: a *= std::erfc(-a / std::sqrt(2.0)) / 2; break;
            case Activation::quick_gelu: a /= 1 + std::exp(-1.702 * a); break;
            case Activation::relu: a = std::max(a, 0.0); break;
            case Activation::geglu:
              a *= (1 + std::tanh(std::sqrt(2 / pi) * (a + 0.044715 * a * a * a))) / 2 *
                   product(up, kInner + i, x.row<float>(t), kHidden);
              break;
            case Activation::swiglu:
              a *= gate * product(up, kInner + i, x.row<float>(t), kHidden);
              break;
          }
          inner.push_back(a);
        }
        for (int64_t c = 0; c < kHidden; ++c) {
          double want = product(down, c, inner.data(), kInner);
          if (biased) want += double{layer.down_biases[e].data<float>()[c]};
          EXPECT_NEAR(got.row<float>(t)[c], want, 1e-5) << static_cast<int>(act) << biased;
        }
      }
    }
}

TEST(Experts, EveryActivationAndBiasEqualsTheReferenceOnEveryInstructionSet) {
  for (Activation act : kActivations)
    for (bool biased : {false, true})
      for (DType weights : {DType::f32, DType::bf16, DType::i8})
        for (const auto& size :
             {std::array<int, 4>{0, 32, 32, 1}, {1, 32, 16, 1}, {23, 70, 50, 2}, {61, 33, 72, 2}}) {
          const int tokens = size[0], hidden = size[1], inner = size[2], slots = size[3];
          const DType dtype = weights == DType::f32 ? DType::f32 : DType::bf16;
          const Tensor x = random_tensor({tokens, hidden}, dtype, 77);
          const std::vector<int32_t> ids = random_ids(tokens, slots, 3, true);
          const auto made = [&](Isa isa) {
            return Layer(hidden, inner, 3, weights, isa, act, biased).run(x, ids);
          };
          const Tensor want = made(Isa::reference);
          for (Isa isa : available_isas())
            EXPECT_LT(relative_l2(made(isa), want), dtype == DType::f32 ? 2e-6 : 3e-3)
                << name_of(isa) << " act " << static_cast<int>(act) << (biased ? " biased " : " ")
                << tensor::name_of(weights) << " " << tokens << "x" << hidden << "x" << inner;
        }
}

TEST(Experts, ANumberThatIsNoneComesThroughEveryActivation) {
  Tensor x = random_tensor({2, 32}, DType::f32, 7);
  x.row<float>(1)[3] = std::nanf("");
  for (Activation act : kActivations)
    for (Isa isa : available_isas()) {
      const Tensor got = Layer(32, 48, 1, DType::f32, isa, act, true).run(x, {0, 0});
      EXPECT_FALSE(std::isnan(got.row<float>(0)[5])) << name_of(isa);
      EXPECT_TRUE(std::isnan(got.row<float>(1)[5])) << name_of(isa) << static_cast<int>(act);
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
    const int64_t tokens = isa == Isa::reference ? 12 : 120;
    for (auto [dtype, act] : {std::pair{DType::f32, Activation::swiglu},
                              {DType::bf16, Activation::swiglu},
                              {DType::i8, Activation::swiglu},
                              {DType::u8, Activation::swiglu},
                              {DType::f32, Activation::relu},
                              {DType::bf16, Activation::gelu_erf},
                              {DType::i8, Activation::silu},
                              {DType::u8, Activation::silu}}) {
      const Layer layer(96, 200, 3, dtype, isa, act, true);
      const Tensor x =
          random_tensor({tokens, 96}, dtype == DType::f32 ? DType::f32 : DType::bf16, 5);
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

// An expert of a layer for dense rows, in parts of `rows` rows and runs of `panels` panels, the
// last first.
Tensor in_tiles(const Layer& layer, size_t e, const Tensor& x, int64_t rows, int64_t panels) {
  const ExpertTiles& tiles = *cpu_table(layer.isa).expert_tiles;
  ExpertView expert{&layer.weights[2 * e], &layer.weights[2 * e + 1]};
  if (!layer.up_biases.empty()) expert.up_bias = layer.up_biases[e].data<float>();
  if (!layer.down_biases.empty()) expert.down_bias = layer.down_biases[e].data<float>();
  const ExpertCuts cuts = tiles.cuts(expert);
  const Tensor y = random_tensor(x.shape(), x.dtype(), 31);
  Scratch scratch;
  for (int64_t first = 0; first < x.size(0); first += rows) {
    const Tensor part = x.slice(0, first, std::min(first + rows, x.size(0)));
    ExpertTile tile{.expert = &expert,
                    .activation = layer.activation,
                    .x = part.raw(),
                    .dtype = x.dtype(),
                    .x_stride = x.stride(0),
                    .rows = part.size(0),
                    .y = y.slice(0, first, first + part.size(0)).raw()};
    const int64_t bytes = tiles.inner_bytes(expert, tile.rows);
    EXPECT_EQ(bytes % 64, 0);
    tile.inner = scratch.at_least(bytes);
    std::memset(tile.inner, 0xff, static_cast<size_t>(bytes));  // NaN, whatever the type
    const auto run = [&](void (*kernel)(const ExpertTile&), int64_t all) {
      for (tile.end = all; tile.end > 0; tile.end = tile.begin) {
        tile.begin = std::max<int64_t>(0, tile.end - panels);
        kernel(tile);
      }
    };
    run(tiles.up, cuts.up_panels);
    run(tiles.down, cuts.down_panels);
  }
  return y;
}

TEST(Experts, AnyTilesGiveTheBitsOfTheLayer) {
  for (Isa isa : available_isas())
    for (auto [dtype, act] : {std::pair{DType::f32, Activation::swiglu},
                              {DType::bf16, Activation::swiglu},
                              {DType::i8, Activation::swiglu},
                              {DType::u8, Activation::swiglu},
                              {DType::f32, Activation::gelu_tanh},
                              {DType::bf16, Activation::relu},
                              {DType::i8, Activation::silu},
                              {DType::u8, Activation::silu}}) {
      const int64_t tokens = 45, hidden = 96, inner = 200;
      const Layer layer(hidden, inner, 2, dtype, isa, act, true);
      const Tensor wide =
          random_tensor({tokens, hidden + 8}, dtype == DType::f32 ? DType::f32 : DType::bf16, 5);
      const Tensor x = wide.slice(1, 0, hidden);
      const Tensor want = layer.run(x, std::vector<int32_t>(tokens, 1));
      for (auto [rows, panels] : {std::array<int64_t, 2>{45, 100}, {45, 1}, {1, 100}, {7, 2}}) {
        const Tensor got = in_tiles(layer, 1, x, rows, panels);
        EXPECT_EQ(std::memcmp(got.raw(), want.raw(), static_cast<size_t>(want.bytes())), 0)
            << name_of(isa) << " " << tensor::name_of(dtype) << " " << rows << " rows";
      }
    }
}

#if defined(__x86_64__)
template <const wide::Engine& (*engine)(const PackedWeight&)>
void experts_by(const ExpertsArgs& args) {
  run_experts(wide::tiles_of<engine>(), args);
}
const wide::Engine& multiply_adds(const PackedWeight&) { return avx512::multiply_add_engine(); }
const wide::Engine& dots(const PackedWeight&) { return avx512::dot_engine(); }
const wide::Engine& digits(const PackedWeight&) { return avx512::digit_engine(); }
const wide::Engine& narrow_multiply_adds(const PackedWeight&) {
  return avx2::multiply_add_engine();
}
const wide::Engine& narrow_digits(const PackedWeight&) { return avx2::digit_engine(false); }
const wide::Engine& narrow_vnni(const PackedWeight&) { return avx2::digit_engine(true); }
const wide::Engine& nibbles(const PackedWeight&) { return avx512::nibble_engine(); }
const wide::Engine& narrow_nibbles(const PackedWeight&) { return avx2::nibble_engine(false); }
const wide::Engine& narrow_vnni_nibbles(const PackedWeight&) { return avx2::nibble_engine(true); }

struct OneEngine {
  void (*experts)(const ExpertsArgs&);
  DType weights;
  bool there;
};

// Engines not chosen on this CPU are correct, too.
TEST(Experts, EveryEngineEqualsTheReferenceAndKeepsTheRowRule) {
  const bool wide = detected_isa() >= Isa::avx512, narrow = detected_isa() >= Isa::avx2;
  for (const auto& [kernel, weights, there] :
       {OneEngine{experts_by<multiply_adds>, DType::bf16, wide},
        {experts_by<dots>, DType::bf16, has_dot_products()},
        {experts_by<digits>, DType::i8, wide},
        {experts_by<narrow_multiply_adds>, DType::bf16, narrow},
        {experts_by<narrow_digits>, DType::i8, narrow},
        {experts_by<narrow_vnni>, DType::i8, has_avx_vnni()},
        {experts_by<nibbles>, DType::u8, wide},
        {experts_by<narrow_nibbles>, DType::u8, narrow},
        {experts_by<narrow_vnni_nibbles>, DType::u8, has_avx_vnni()}}) {
    if (!there) continue;
    for (Activation act : {Activation::swiglu, Activation::silu})
      for (auto [tokens, hidden, inner] : {std::array<int, 3>{1, 32, 16},
                                           {23, 70, 50},
                                           {90, 200, weights == DType::u8 ? 34 : 33},
                                           {130, 520, 80}}) {
        const Tensor x = random_tensor({tokens, hidden}, DType::bf16, 77);
        const std::vector<int32_t> ids(static_cast<size_t>(tokens), 1);
        const Layer plain(hidden, inner, 2, weights, Isa::reference, act, true);
        const Layer layer(hidden, inner, 2, weights, Isa::avx2, act, true);  // by all of them
        const Tensor all = layer.run(kHost, kernel, x, ids);
        EXPECT_LT(relative_l2(all, plain.run(x, ids)), 3e-3)
            << tensor::name_of(weights) << " " << tokens << "x" << hidden << "x" << inner;
        for (int64_t t = 0; t < tokens; t += 11) {
          const int64_t end = std::min<int64_t>(tokens, t + 1 + t % 17);
          const Tensor part = layer.run(kHost, kernel, x.slice(0, t, end),
                                        std::vector<int32_t>(static_cast<size_t>(end - t), 1));
          EXPECT_TRUE(same_bits(part, all.slice(0, t, end).contiguous())) << t << " to " << end;
        }
      }
  }
}
#endif

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
