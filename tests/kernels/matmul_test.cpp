#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "kernels/avx512/product.h"
#include "kernels/bf16_path.h"
#include "kernels/nibbles.h"
#include "kernels/random_values.h"
#include "kernels/reference/epilogue.h"
#include "kernels/table.h"
#include "tensor/scope.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

struct Case {
  int64_t rows, n, k;
};
constexpr Case kCases[] = {{0, 16, 16},   {1, 1, 1},      {5, 17, 33},   {29, 100, 70},
                           {1, 48, 2048}, {13, 33, 1157}, {70, 96, 576}, {33, 40, 2049}};

struct Problem {
  Case size;
  DType x_dtype, w_dtype, y_dtype;
  Activation activation;
  bool bias, gate, residual;
};

// All operands of a product, drawn from the sizes alone.
struct Operands {
  explicit Operands(const Problem& p)
      : problem(p),
        x(random_tensor({p.size.rows, p.size.k}, p.x_dtype, 1)),
        w(random_tensor({p.size.n, p.size.k}, p.w_dtype, 2,
                        1 / std::sqrt(static_cast<float>(p.size.k)))),
        up(random_tensor({p.size.n, p.size.k}, p.w_dtype, 3,
                         1 / std::sqrt(static_cast<float>(p.size.k)))),
        bias(random_tensor({p.size.n}, DType::f32, 4)),
        gate(random_tensor({3, p.size.n}, DType::f32, 5)),
        residual(random_tensor({p.size.rows, p.size.n}, p.y_dtype, 6)) {
    for (int64_t r = 0; r < p.size.rows; ++r) row_of.push_back(static_cast<int32_t>(r % 3));
  }
  bool paired() const { return is_paired(problem.activation); }
  PackedWeight pack(Isa isa) const {
    return pack_weight(w, paired() ? up : Tensor{}, problem.w_dtype, isa);
  }
  // Rows [begin, end) of the product.
  Tensor run(const PackedWeight& packed, int64_t begin, int64_t end) const {
    const Tensor y = Tensor::empty({end - begin, problem.size.n}, problem.y_dtype);
    Epilogue e;
    e.activation = problem.activation;
    if (problem.bias) e.bias = bias.data<float>();
    if (problem.gate) {
      e.gate = gate.data<float>();
      e.gate_stride = problem.size.n;
      e.row_of = row_of.data() + begin;
    }
    if (problem.residual) {
      e.residual = residual.slice(0, begin, end).raw();
      e.residual_dtype = problem.y_dtype;
      e.residual_stride = problem.size.n;
    }
    cpu_table(packed.isa)
        .matmul({.x = x.slice(0, begin, end).raw(),
                 .x_dtype = problem.x_dtype,
                 .x_stride = problem.size.k,
                 .rows = end - begin,
                 .weight = &packed,
                 .epilogue = e,
                 .low = low.defined() ? low.slice(0, begin, end).data<float>() : nullptr,
                 .y = y.raw(),
                 .y_dtype = problem.y_dtype,
                 .y_stride = problem.size.n});
    return y;
  }

  Problem problem;
  Tensor x, w, up, bias, gate, residual;
  Tensor low{};  // with PackedWeight::low
  std::vector<int32_t> row_of;
};

// Largest error of `got` against f64 sums, in units of the bound.
double worst_error(const Operands& o, const Tensor& got) {
  const Problem& p = o.problem;
  const std::vector<float> w = o.w.to_floats(), up = o.up.to_floats(), y = got.to_floats(),
                           residual = o.residual.to_floats();
  std::vector<float> x = o.x.to_floats();
  if (p.w_dtype == DType::bf16)
    for (float& v : x) v = tensor::to_float(tensor::to_bfloat16(v));
  double worst = 0;
  for (int64_t r = 0; r < p.size.rows; ++r)
    for (int64_t j = 0; j < p.size.n; ++j) {
      double a = 0, b = 0, size = 0;
      for (int64_t i = 0; i < p.size.k; ++i) {
        const double xi = x[static_cast<size_t>(r * p.size.k + i)];
        const auto at = static_cast<size_t>(j * p.size.k + i);
        a += xi * w[at];
        b += xi * up[at];
        size += std::abs(xi * w[at]) + std::abs(xi * up[at]);
      }
      if (p.bias) a += o.bias.data<float>()[j];
      double want = reference::activate(p.activation, a, b), gain = 1.2 + std::abs(a) + std::abs(b);
      if (p.gate) {
        want *= o.gate.row<float>(r % 3)[j];
        gain *= 1 + std::abs(o.gate.row<float>(r % 3)[j]);
      }
      if (p.residual) want += residual[static_cast<size_t>(r * p.size.n + j)];
      const double round = p.y_dtype == DType::f32 ? 5e-7 : p.y_dtype == DType::f16 ? 6e-4 : 4.3e-3;
      const double bound = 4e-7 * (1 + size) * gain + round * (std::abs(want) + 0.02);
      worst = std::max(worst, std::abs(y[static_cast<size_t>(r * p.size.n + j)] - want) / bound);
    }
  return worst;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.bytes())) == 0;
}

TEST(Matmul, EqualsF64SumsOnEveryInstructionSet) {
  for (Isa isa : available_isas())
    for (Case size : kCases)
      for (DType w : {DType::f32, DType::bf16})
        for (DType x : {DType::f32, DType::bf16, DType::f16}) {
          const Operands o({size, x, w, x, Activation::none, true, false, false});
          EXPECT_LT(worst_error(o, o.run(o.pack(isa), 0, size.rows)), 1)
              << name_of(isa) << " " << size.rows << "x" << size.n << "x" << size.k << " "
              << tensor::name_of(x) << " " << tensor::name_of(w);
        }
}

TEST(Matmul, EpiloguesEqualF64OnEveryInstructionSet) {
  for (Isa isa : available_isas())
    for (Activation act :
         {Activation::none, Activation::silu, Activation::gelu_tanh, Activation::gelu_erf,
          Activation::quick_gelu, Activation::relu, Activation::swiglu, Activation::geglu})
      for (DType w : {DType::f32, DType::bf16})
        for (DType y : {DType::f32, DType::bf16, DType::f16})
          for (bool gated : {false, true}) {
            const Operands o({{37, 85, 70}, DType::f32, w, y, act, !is_paired(act), gated, gated});
            EXPECT_LT(worst_error(o, o.run(o.pack(isa), 0, 37)), 1)
                << name_of(isa) << " act " << static_cast<int>(act) << " " << tensor::name_of(w)
                << " -> " << tensor::name_of(y) << (gated ? " gated" : "");
          }
}

TEST(Matmul, ARowDoesNotDependOnOtherRowsOrThreads) {
  for (Isa isa : available_isas()) {
    const int64_t rows = isa == Isa::reference ? 20 : 300;
    for (DType dtype : {DType::f32, DType::bf16})
      for (auto [n, k] : {std::array<int64_t, 2>{70, 100}, {130, 1152}}) {
        const Operands o(
            {{rows, n, k}, dtype, dtype, dtype, Activation::gelu_tanh, true, true, true});
        const PackedWeight w = o.pack(isa);
        const Tensor all = o.run(w, 0, rows);
        for (int64_t count : {int64_t{1}, int64_t{7}, int64_t{13}, int64_t{64}})
          for (int64_t begin = 0; begin + count <= rows; begin += 97)
            EXPECT_TRUE(
                same_bits(o.run(w, begin, begin + count), all.slice(0, begin, begin + count)))
                << name_of(isa) << " rows " << begin << " + " << count;
        for (int threads : {2, 3}) {
          base::ThreadPool pool(threads);
          tensor::Scope threaded;
          threaded.pool = &pool;
          const tensor::BindScope scope(threaded);
          EXPECT_TRUE(same_bits(o.run(w, 0, rows), all)) << name_of(isa) << " " << threads;
        }
      }
  }
}

// [a b] of matrices with as many rows.
Tensor beside(const Tensor& a, const Tensor& b) {
  const Tensor both = Tensor::empty({a.size(0), a.size(1) + b.size(1)}, DType::f32);
  tensor::copy_into(both.slice(1, 0, a.size(1)), a);
  tensor::copy_into(both.slice(1, a.size(1), both.size(1)), b);
  return both;
}

// A weight with a low-rank change: (x down^T) is drawn, so `down` only has a size.
PackedWeight with_low(const Operands& o, PackedWeight packed, const std::array<Tensor, 2>& up) {
  const int64_t rank = up[0].size(1);
  packed.low = std::make_shared<const LowRank>(LowRank{
      pack_weight(random_tensor({rank, packed.k}, DType::f32, 9), {}, DType::f32, packed.isa),
      pack_weight(up[0], o.paired() ? up[1] : Tensor{}, DType::f32, packed.isa)});
  return packed;
}

TEST(Matmul, ALowRankChangeIsMoreColumnsOfXOnEveryInstructionSet) {
  for (Isa isa : available_isas())
    for (Activation act : {Activation::none, Activation::gelu_tanh, Activation::swiglu})
      for (int64_t rank : {1, 4, 33}) {
        const int64_t rows = 37, n = 85;
        Operands o(
            {{rows, n, 70}, DType::f32, DType::f32, DType::f32, act, !is_paired(act), true, true});
        o.low = random_tensor({rows, rank}, DType::f32, 7);
        const std::array<Tensor, 2> up{random_tensor({n, rank}, DType::f32, 8),
                                       random_tensor({n, rank}, DType::f32, 10)};
        const PackedWeight w = with_low(o, o.pack(isa), up);
        const Tensor all = o.run(w, 0, rows);
        for (int64_t begin : {0, 5, 30})
          EXPECT_TRUE(same_bits(o.run(w, begin, begin + 7), all.slice(0, begin, begin + 7)))
              << name_of(isa) << " rank " << rank << " from " << begin;
        Operands wide = o;
        wide.problem.size.k += rank;
        wide.x = beside(o.x, o.low);
        wide.w = beside(o.w, up[0]);
        wide.up = beside(o.up, up[1]);
        wide.low = {};
        EXPECT_LT(worst_error(wide, all), 1) << name_of(isa) << " rank " << rank;
      }
}

TEST(Matmul, ALowRankChangeStandsBesideQuantisedWeights) {
  for (Isa isa : available_isas())
    for (bool int4 : {false, true}) {
      const int64_t rows = 19, n = 85, k = 256, rank = 16;
      Operands o({{rows, n, k},
                  DType::f32,
                  DType::f32,
                  DType::f32,
                  Activation::none,
                  false,
                  false,
                  false});
      PackedWeight plain =
          pack_weight(int4 ? quantise_groups(o.w) : quantise_rows(o.w), {}, DType::i8, isa);
      plain.int8_rows = true;
      const std::vector<float> before = o.run(plain, 0, rows).to_floats();
      const Tensor up = random_tensor({n, rank}, DType::f32, 8);
      o.low = random_tensor({rows, rank}, DType::f32, 7);
      const std::vector<float> after = o.run(with_low(o, plain, {up, {}}), 0, rows).to_floats();
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t i = 0; i < rank; ++i)
            sum += double(o.low.row<float>(r)[i]) * double(up.row<float>(j)[i]);
          const auto at = static_cast<size_t>(r * n + j);
          EXPECT_NEAR(after[at] - before[at], sum, 1e-5) << name_of(isa) << (int4 ? " int4" : "");
        }
    }
}

// Weights in int8 with a scale per row. AVX-512 quantises rows, too, with an error of at most
// 1/65,278 of the largest magnitude. No library takes part, so rows do not depend on each other.
TEST(Matmul, WholeNumbersEqualF64SumsAndKeepTheRowRule) {
  for (Isa isa : available_isas())
    for (Case size : kCases)
      for (Activation act : {Activation::none, Activation::swiglu, Activation::geglu}) {
        const bool paired = is_paired(act);
        Operands o({size, DType::f32, DType::f32, DType::f32, act, !paired, true, true});
        const StoredMatrix w = quantise_rows(o.w), up = quantise_rows(o.up);
        for (auto [whole, floats] : {std::pair(&w, &o.w), {&up, &o.up}})
          for (int64_t j = 0; j < size.n; ++j)
            for (int64_t i = 0; i < size.k; ++i)
              floats->row<float>(j)[i] =
                  whole->values.row<int8_t>(j)[i] * whole->scales.data<float>()[j];
        const PackedWeight packed = pack_weight(w, paired ? up : StoredMatrix{}, DType::i8, isa);
        const Tensor all = o.run(packed, 0, size.rows);
        for (int64_t r = 0; r < size.rows; ++r) {
          const float* x = o.x.row<float>(r);
          const auto by_size = [](float a, float b) { return std::abs(a) < std::abs(b); };
          const double off = std::abs(*std::max_element(x, x + size.k, by_size)) / 65278.0 + 1e-6;
          for (int64_t j = 0; j < size.n; ++j) {
            double a = paired ? 0 : o.bias.data<float>()[j], b = 0, error_a = 1e-6, error_b = 1e-6;
            for (int64_t i = 0; i < size.k; ++i) {
              a += double{x[i]} * o.w.row<float>(j)[i];
              b += double{x[i]} * o.up.row<float>(j)[i];
              error_a += off * std::abs(o.w.row<float>(j)[i]);
              error_b += off * std::abs(o.up.row<float>(j)[i]);
            }
            const double gate = o.gate.row<float>(r % 3)[j];
            const double want = reference::activate(act, a, b) * gate + o.residual.row<float>(r)[j];
            const double bound =
                std::abs(gate) *
                    (paired ? 1.2 * error_a * std::abs(b) + (std::abs(a) + 1) * error_b : error_a) +
                1e-6 * (1 + std::abs(want));
            EXPECT_NEAR(all.row<float>(r)[j], want, bound)
                << name_of(isa) << " " << size.rows << "x" << size.n << "x" << size.k;
          }
        }
        for (int64_t r = 0; r < size.rows; r += 9)
          EXPECT_TRUE(same_bits(o.run(packed, r, r + 1), all.slice(0, r, r + 1)));
      }
}

#if defined(__x86_64__)
// Long rows: not so few that each pass waits for its weights, nor so many that no cache holds them.
TEST(Matmul, RowsOfAPassAreWholeGroupsAndWorthIt) {
  wide::Engine padded = avx512::multiply_add_engine();  // only their layouts are read
  padded.padded = true, padded.most = 32;               // as tiles take rows
  for (const wide::Engine& e : {avx512::multiply_add_engine(), padded})
    for (const int64_t steps : {1, 12, 36, 128, 384, 4096, 100000}) {
      const int64_t rows = wide::resident_rows(e, steps, DType::bf16);
      const int64_t bytes = e.layout(rows, steps, DType::bf16).bytes();
      EXPECT_EQ(rows % e.most, 0) << steps;
      EXPECT_TRUE(rows == e.most || bytes <= int64_t{4} << 20) << steps << ": " << rows;
      EXPECT_TRUE(rows >= 96 - e.most || bytes > int64_t{5} << 19) << steps << ": " << rows;
    }
}

// Engines not chosen on this CPU are correct, too.
TEST(Matmul, BothEnginesEqualF64SumsAndKeepTheRowRule) {
  if (detected_isa() < Isa::avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  const Operands o(
      {{61, 85, 70}, DType::bf16, DType::bf16, DType::f32, Activation::none, false, false, false});
  const PackedWeight w = o.pack(Isa::avx512);
  for (const avx512::Engine* engine : {&avx512::multiply_add_engine(), &avx512::dot_engine()}) {
    if (engine == &avx512::dot_engine() && !has_dot_products()) continue;
    auto run = [&](int64_t begin, int64_t end) {
      const Tensor y = Tensor::empty({end - begin, 85}, DType::f32);
      avx512::multiply(*engine, {.x = o.x.slice(0, begin, end).raw(),
                                 .x_dtype = DType::bf16,
                                 .x_stride = 70,
                                 .rows = end - begin,
                                 .weight = &w,
                                 .epilogue = {},
                                 .y = y.raw(),
                                 .y_dtype = DType::f32,
                                 .y_stride = 85});
      return y;
    };
    const Tensor all = run(0, 61);
    EXPECT_LT(worst_error(o, all), 1);
    for (int64_t r = 0; r < 61; r += 10)
      EXPECT_TRUE(same_bits(run(r, r + 1), all.slice(0, r, r + 1)));
  }
}
#endif

TEST(Matmul, StridesAreRespected) {
  for (Isa isa : available_isas()) {
    const Tensor wide = random_tensor({9, 100}, DType::bf16, 1), x = wide.slice(1, 20, 73);
    const PackedWeight w =
        pack_weight(random_tensor({24, 53}, DType::bf16, 2), {}, DType::bf16, isa);
    const Tensor y = Tensor::zeros({9, 40}, DType::f32), dense = Tensor::empty({9, 24}, DType::f32);
    const Tensor copy = x.contiguous();
    MatmulArgs args{.x = x.raw(),
                    .x_dtype = DType::bf16,
                    .x_stride = 100,
                    .rows = 9,
                    .weight = &w,
                    .epilogue = {},
                    .y = y.data<float>() + 8,
                    .y_dtype = DType::f32,
                    .y_stride = 40};
    cpu_table(isa).matmul(args);
    args.x = copy.raw();
    args.x_stride = 53;
    args.y = dense.raw();
    args.y_stride = 24;
    cpu_table(isa).matmul(args);
    for (int64_t r = 0; r < 9; ++r) {
      EXPECT_EQ(std::memcmp(y.row<float>(r) + 8, dense.row<float>(r), 24 * 4), 0);
      EXPECT_EQ(y.row<float>(r)[7], 0);
      EXPECT_EQ(y.row<float>(r)[32], 0);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
