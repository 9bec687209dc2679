#include "kernels/matmul.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/nibbles.h"
#include "kernels/reference/epilogue.h"
#include "kernels/reference/integers.h"
#include "tensor/scope.h"

namespace tessera::kernels::reference {
namespace {

using tensor::DType;

constexpr int64_t kColumns = 64;

double load(const void* data, DType dtype, int64_t at) {
  return tensor::with_float_type(dtype, [&](auto type) {
    return static_cast<double>(tensor::to_float(static_cast<const decltype(type)*>(data)[at]));
  });
}

void store(void* data, DType dtype, int64_t at, double value) {
  tensor::with_float_type(dtype, [&](auto type) {
    using T = decltype(type);
    static_cast<T*>(data)[at] = tensor::from_float<T>(static_cast<float>(value));
  });
}

// Sums of a row with rows [begin, end) of W, in the order of k.
template <class T>
void sums(const std::vector<float>& x, const PackedWeight& w, int64_t begin, int64_t end,
          double* out) {
  for (int64_t j = begin; j < end; ++j) {
    const T* row = w.data.row<T>(j);
    double sum = 0;
    for (int64_t i = 0; i < w.k; ++i) sum += double{x[static_cast<size_t>(i)]} * value_of(row[i]);
    out[j - begin] = w.scales.defined() ? sum * double{w.scales.data<float>()[j]} : sum;
  }
}

// Same for int4, group by group.
void sums_of_nibbles(const std::vector<float>& x, const PackedWeight& w, int64_t begin, int64_t end,
                     double* out) {
  for (int64_t j = begin; j < end; ++j) {
    const uint8_t* row = w.data.row<uint8_t>(j);
    double sum = 0;
    for (int64_t first = 0; first < w.k; first += kGroupElements) {
      double part = 0;
      for (int64_t i = first; i < std::min(first + kGroupElements, w.k); ++i)
        part += double{x[static_cast<size_t>(i)]} * nibble(row, i);
      const auto* scales = w.scales.row<tensor::BFloat16>(j);
      sum += part * double{tensor::to_float(scales[first / kGroupElements])};
    }
    out[j - begin] = sum;
  }
}

void sums_of(const std::vector<float>& x, const PackedWeight& w, int64_t begin, int64_t end,
             double* out) {
  if (w.int4) return sums_of_nibbles(x, w, begin, end, out);
  with_weight_type(w.dtype, [&](auto type) { sums<decltype(type)>(x, w, begin, end, out); });
}

std::vector<float> row_of(const MatmulArgs& args, int64_t r) {
  std::vector<float> x(static_cast<size_t>(args.weight->k));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] =
        static_cast<float>(load(args.x, args.x_dtype, r * args.x_stride + static_cast<int64_t>(i)));
    if (args.weight->dtype == DType::bf16) x[i] = tensor::to_float(tensor::to_bfloat16(x[i]));
  }
  return x;
}

// Low-rank part of element [r, j] of the product.
double low_rank_sum(const MatmulArgs& args, int64_t r, int64_t j) {
  if (!args.low) return 0;
  const PackedWeight& up = args.weight->low->up;
  double sum = 0;
  for (int64_t i = 0; i < up.k; ++i)
    sum += double{args.low[r * up.k + i]} * double{up.data.row<float>(j)[i]};
  return sum;
}

void finish(const MatmulArgs& args, int64_t r, int64_t j, double sum, double up) {
  const Epilogue& e = args.epilogue;
  double value = activate(e.activation, e.bias ? sum + e.bias[j] : sum, up);
  if (e.gate) value *= e.gate[(e.row_of ? e.row_of[r] : 0) * e.gate_stride + j];
  if (e.residual) value += load(e.residual, e.residual_dtype, r * e.residual_stride + j);
  store(args.y, args.y_dtype, r * args.y_stride + j, value);
}

}  // namespace

void matmul(const MatmulArgs& args) {
  const PackedWeight& w = *args.weight;
  tensor::parallel_for(args.rows, 1, [&](int64_t first, int64_t last) {
    double sum[kColumns], up[kColumns] = {};
    for (int64_t r = first; r < last; ++r) {
      std::vector<float> x = row_of(args, r);
      const double scale = w.int8_rows ? quantise_row(x) : 1;
      for (int64_t j = 0; j < w.n; j += kColumns) {
        const int64_t end = std::min(j + kColumns, w.n);
        sums_of(x, w, j, end, sum);
        if (w.paired) sums_of(x, w, w.n + j, w.n + end, up);
        for (int64_t c = j; c < end; ++c)
          finish(args, r, c, scale * sum[c - j] + low_rank_sum(args, r, c),
                 w.paired ? scale * up[c - j] + low_rank_sum(args, r, w.n + c) : 0);
      }
    }
  });
}

}  // namespace tessera::kernels::reference
