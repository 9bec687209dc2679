#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/amx/tiles.h"
#include "kernels/avx512/product.h"
#include "kernels/engine_product.h"
#include "kernels/nibbles.h"
#include "kernels/packed_transpose.h"
#include "kernels/random_values.h"
#include "kernels/tile_model.h"
#include "kernels/wide/stream.h"
#include "tensor/scope.h"

#if defined(__x86_64__)
#include "kernels/amx/sweep.inc"
// Behind the blocks.
#include "kernels/amx/groups.inc"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

// The blocking of AMX with a model of the instructions: everything except the instructions.
constexpr avx512::Engine kModel{.most = amx::kRows,
                                .padded = true,
                                .rows_for_bf16 = DType::bf16,
                                .sweep = amx::sweep<TileModel>,
                                .kernels = avx512::row_kernels,
                                .extend = amx::extend<TileModel>,
                                .chunk = amx::chunk_of};
constexpr ExpertTiles kModelTiles{
    [](const ExpertView& expert) { return avx512::expert_cuts(kModel, expert); },
    [](const ExpertView& expert, int64_t rows) {
      return avx512::expert_inner_bytes(kModel, expert, rows);
    },
    [](const ExpertTile& tile) { avx512::expert_up_tile(kModel, tile); },
    [](const ExpertTile& tile) { avx512::expert_down_tile(kModel, tile); }};

Tensor run(const Tensor& x, const PackedWeight& w, Activation activation) {
  Tensor y = Tensor::empty({x.size(0), w.n}, DType::f32);
  Epilogue epilogue;
  epilogue.activation = activation;
  avx512::multiply(kModel, {.x = x.raw(),
                            .x_dtype = DType::bf16,
                            .x_stride = x.stride(0),
                            .rows = x.size(0),
                            .weight = &w,
                            .epilogue = epilogue,
                            .y = y.raw(),
                            .y_dtype = DType::f32,
                            .y_stride = w.n});
  return y;
}

double worst_difference(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = a.to_floats(), y = b.to_floats();
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i)
    worst = std::max(worst, std::abs(double{x[i]} - y[i]) / (1 + std::abs(double{y[i]})));
  return worst;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

TEST(AmxSweep, EqualsTheReferenceOnModelledTiles) {
  // The vector work beside the tiles is AVX-512.
  if (detected_isa() < Isa::avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  for (auto [rows, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                            {5, 17, 33},
                            {37, 100, 70},
                            {70, 49, 577},
                            {33, 64, 1255},
                            {66, 33, 2400}})
    for (Activation act : {Activation::none, Activation::swiglu}) {
      const float scale = 1 / std::sqrt(static_cast<float>(k));
      const Tensor x = random_tensor({rows, k}, DType::bf16, 1);
      const Tensor w = random_tensor({n, k}, DType::bf16, 2, scale);
      const Tensor up =
          act == Activation::swiglu ? random_tensor({n, k}, DType::bf16, 3, scale) : Tensor{};
      const PackedWeight plain = pack_weight(w, up, DType::bf16, Isa::reference);
      Tensor want = Tensor::empty({rows, n}, DType::f32);
      Epilogue epilogue;
      epilogue.activation = act;
      reference::matmul({.x = x.raw(),
                         .x_dtype = DType::bf16,
                         .x_stride = k,
                         .rows = rows,
                         .weight = &plain,
                         .epilogue = epilogue,
                         .y = want.raw(),
                         .y_dtype = DType::f32,
                         .y_stride = n});
      EXPECT_LT(worst_difference(run(x, pack_weight(w, up, DType::bf16, Isa::amx), act), want),
                1e-5)
          << rows << "x" << n << "x" << k;
    }
}

TEST(AmxSweep, ARowDoesNotDependOnOtherRowsOrThreads) {
  if (detected_isa() < Isa::avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  const Tensor x = random_tensor({77, 700}, DType::bf16, 1);
  const PackedWeight w =
      pack_weight(random_tensor({48, 700}, DType::bf16, 2), {}, DType::bf16, Isa::amx);
  const Tensor all = run(x, w, Activation::gelu_tanh);
  for (int64_t r = 0; r < 77; r += 19)
    EXPECT_TRUE(
        same_bits(run(x.slice(0, r, r + 1), w, Activation::gelu_tanh), all.slice(0, r, r + 1)));
  EXPECT_TRUE(same_bits(run(x.slice(0, 3, 40), w, Activation::gelu_tanh), all.slice(0, 3, 40)));
  base::ThreadPool pool(2);
  tensor::Scope scope;
  scope.pool = &pool;
  const tensor::BindScope bind(scope);
  EXPECT_TRUE(same_bits(run(x, w, Activation::gelu_tanh), all));
}

TEST(AmxSweep, ATableHasTheBitsOfItsPackedTranspose) {
  if (detected_isa() < Isa::avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  for (const int64_t k : {33, 577, 1255, 2400}) {  // steps of 1, 1, 3 and 5 chunks
    const Tensor x = random_tensor({70, k}, DType::bf16, 1),
                 table = random_tensor({k, 49}, DType::bf16, 2);
    const PackedWeight packed = pack_weight(
        pack_transposed(table, DType::bf16, Isa::reference).data, {}, DType::bf16, Isa::amx);
    EXPECT_TRUE(same_bits(run(x, pack_transposed(table, DType::bf16, Isa::amx), Activation::none),
                          run(x, packed, Activation::none)))
        << k;
  }
}

TEST(AmxSweep, ExpertsEqualTheReferenceOnModelledTiles) {
  if (detected_isa() < Isa::avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  const int64_t tokens = 45, hidden = 70, inner = 50;
  std::vector<PackedWeight> packed;
  for (Isa isa : {Isa::reference, Isa::amx})
    for (uint32_t e = 0; e < 2; ++e) {
      packed.push_back(pack_weight(random_tensor({inner, hidden}, DType::bf16, 3 * e, 0.1f),
                                   random_tensor({inner, hidden}, DType::bf16, 3 * e + 1, 0.1f),
                                   DType::bf16, isa));
      packed.push_back(pack_weight(random_tensor({hidden, inner}, DType::bf16, 3 * e + 2, 0.1f), {},
                                   DType::bf16, isa));
    }
  const Tensor x = random_tensor({tokens, hidden}, DType::bf16, 9);
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < tokens; ++t) ids.push_back(t % 3 == 2 ? -1 : static_cast<int32_t>(t % 3));
  auto rows_of = [&](size_t first, auto kernel) {
    const ExpertView bank[] = {{&packed[first], &packed[first + 1]},
                               {&packed[first + 2], &packed[first + 3]}};
    Tensor rows = Tensor::empty({tokens, hidden}, DType::bf16);
    kernel(ExpertsArgs{.x = x.raw(),
                       .dtype = DType::bf16,
                       .x_stride = hidden,
                       .tokens = tokens,
                       .slots = 1,
                       .hidden = hidden,
                       .inner = inner,
                       .ids = ids.data(),
                       .bank = bank,
                       .experts = 2,
                       .rows = rows.raw()});
    return rows;
  };
  const Tensor want = rows_of(0, reference::experts);
  const Tensor got = rows_of(4, [](const ExpertsArgs& args) { run_experts(kModelTiles, args); });
  EXPECT_LT(worst_difference(got, want), 5e-3);
}

// Rows of digits with their scales behind them, as VNNI packs them.
struct Digits {
  wide::RowLayout layout;
  std::vector<int8_t> digits;
  std::vector<float> scales;
  std::vector<std::byte> packed;

  Digits(int64_t rows, int64_t k)
      : layout{rows,          wide::ceil_div(k, step_elements(DType::i8)), amx::kRows, true, 64,
               wide::kRowTail} {
    std::mt19937 draw(7);
    for (int64_t i = 0; i < rows * k; ++i)
      digits.push_back(static_cast<int8_t>(static_cast<int>(draw() % 255) - 127));
    packed.resize(static_cast<size_t>(layout.bytes()));
    for (int64_t r = 0; r < rows; ++r) {
      scales.push_back(static_cast<float>(r + 1) / 100);
      std::memcpy(packed.data() + layout.tail_at() + r * wide::kRowTail, &scales.back(), 4);
      for (int64_t s = 0; s < layout.steps; ++s)
        std::copy_n(digits.data() + r * k + s * 64, std::min<int64_t>(64, k - s * 64),
                    reinterpret_cast<int8_t*>(packed.data() + layout.offset(r, s)));
    }
  }
};

// Sums of a sweep over all panels, [rows, n], each written once.
struct Written final : wide::BlockWriter {
  int64_t n;
  std::vector<float> sums;
  std::vector<int> times;
  Written(int64_t rows, int64_t columns)
      : n(columns), sums(static_cast<size_t>(rows * n)), times(sums.size()) {}
  void write(int64_t row, int64_t rows, int64_t panel, const float* from) override {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < std::min(kPanelColumns, n - panel * kPanelColumns); ++c) {
        const auto at = static_cast<size_t>((row + r) * n + panel * kPanelColumns + c);
        sums.at(at) = from[r * kPanelColumns + c];
        ++times[at];
      }
  }
};

constexpr std::array<int64_t, 3> kInt8Problems[] = {
    {1, 1, 2}, {5, 17, 66}, {33, 40, 64}, {37, 100, 1280}, {70, 64, 2400}};

// Needs no AVX-512: rows are packed here, and so below.
TEST(AmxSweep, Bf16SumsAreNearOnModelledTiles) {
  for (const auto& [rows, n, k] : kInt8Problems) {
    const Tensor w = random_tensor({n, k}, DType::bf16, 2),
                 x = random_tensor({rows, k}, DType::bf16, 1);
    const PackedWeight packed = pack_weight(w, {}, DType::bf16, Isa::amx);
    const wide::RowLayout layout{rows, panel_shape(packed).steps, amx::kRows, true, 64};
    std::vector<std::byte> lines(static_cast<size_t>(layout.bytes()));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < k; i += 32)
        std::memcpy(lines.data() + layout.offset(r, i / 32), x.row<tensor::BFloat16>(r) + i,
                    static_cast<size_t>(2 * std::min<int64_t>(32, k - i)));
    Written got(rows, n);
    amx::sweep<TileModel>(lines.data(), layout, packed, {0, panel_shape(packed).panels}, got);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < n; ++c) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i)
          sum += double{tensor::to_float(x.row<tensor::BFloat16>(r)[i])} *
                 double{tensor::to_float(w.row<tensor::BFloat16>(c)[i])};
        const auto at = static_cast<size_t>(r * n + c);
        ASSERT_EQ(got.times[at], 1);
        ASSERT_NEAR(got.sums[at], sum, 1e-5 * std::sqrt(double(k)) + 1e-5 * std::fabs(sum));
      }
  }
}

TEST(AmxSweep, Int8SumsAreExactOnModelledTiles) {
  for (const auto& [rows, n, k] : kInt8Problems) {
    const StoredMatrix stored = quantise_rows(random_tensor({n, k}, DType::f32, 2));
    const PackedWeight w = pack_weight(stored, {}, DType::i8, Isa::amx);
    const Digits x(rows, k);
    Written got(rows, n);
    const int64_t panels = panel_shape(w).panels;
    amx::int8_sweep<Int8TileModel>(x.packed.data(), x.layout, w, {0, panels / 2}, got);
    amx::int8_sweep<Int8TileModel>(x.packed.data(), x.layout, w, {panels / 2, panels}, got);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < n; ++c) {
        int32_t sum = 0;
        for (int64_t i = 0; i < k; ++i)
          sum += x.digits[static_cast<size_t>(r * k + i)] * stored.values.row<int8_t>(c)[i];
        const auto at = static_cast<size_t>(r * n + c);
        ASSERT_EQ(got.times[at], 1);
        ASSERT_EQ(got.sums[at], static_cast<float>(sum) * stored.scales.data<float>()[c] *
                                    x.scales[static_cast<size_t>(r)])
            << rows << "x" << n << "x" << k;
      }
  }
}

TEST(AmxSweep, Int4SumsOfGroupsAreExactOnModelledTiles) {
  for (const auto& [rows, n, k] : kInt8Problems) {
    const StoredMatrix stored = quantise_groups(random_tensor({n, k}, DType::f32, 2));
    const PackedWeight w = pack_weight(stored, {}, DType::i8, Isa::amx);
    const Digits x(rows, k);
    Written got(rows, n);
    amx::int4_sweep<Int8TileModel>(x.packed.data(), x.layout, w, {0, panel_shape(w).panels}, got);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < n; ++c) {
        float sum = 0;
        for (int64_t first = 0; first < k; first += kGroupElements) {
          int32_t group = 0;
          for (int64_t i = first; i < std::min(first + kGroupElements, k); ++i)
            group +=
                x.digits[static_cast<size_t>(r * k + i)] * nibble(stored.values.row<uint8_t>(c), i);
          const auto* scales = stored.scales.row<tensor::BFloat16>(c);
          sum = std::fma(static_cast<float>(group),
                         tensor::to_float(scales[first / kGroupElements]), sum);
        }
        const auto at = static_cast<size_t>(r * n + c);
        ASSERT_EQ(got.times[at], 1);
        ASSERT_EQ(got.sums[at], sum * x.scales[static_cast<size_t>(r)])
            << rows << "x" << n << "x" << k;
      }
  }
}

// The engines as a whole, with rows packed by AVX-512, have the bits of VNNI.
TEST(AmxSweep, IntegerEnginesHaveTheBitsOfVnni) {
  if (detected_isa() < Isa::avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  for (const bool int4 : {false, true}) {
    wide::Engine model = int4 ? avx512::int4_engine() : avx512::int8_engine();
    model.most = amx::kRows;
    model.padded = true;
    model.sweep = int4 ? amx::int4_sweep<Int8TileModel> : amx::int8_sweep<Int8TileModel>;
    for (const auto& [rows, n, k] : kInt8Problems) {
      const Tensor w = random_tensor({n, k}, DType::f32, 2);
      PackedWeight packed =
          pack_weight(int4 ? quantise_groups(w) : quantise_rows(w), {}, DType::i8, Isa::amx);
      packed.int8_rows = true;
      const Tensor x = random_tensor({rows, k}, DType::bf16, 1);
      EXPECT_TRUE(
          same_bits(product(model, x, packed),
                    product(int4 ? avx512::int4_engine() : avx512::int8_engine(), x, packed)))
          << int4 << rows << "x" << n << "x" << k;
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
#endif  // __x86_64__
