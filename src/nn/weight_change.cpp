#include "nn/weight_change.h"

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "tensor/scope.h"

namespace tessera::nn {

using tensor::DType;
using tensor::Tensor;

namespace {

using Rows = std::vector<double>;  // row-major elements of a matrix

// to += up down, of f32 matrices.
void add_product(const Tensor& up, const Tensor& down, Rows& to) {
  const int64_t rank = up.size(1), k = down.size(1);
  tensor::parallel_for(up.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t r = 0; r < rank; ++r) {
        const double by = up.row<float>(i)[r];
        const float* const from = down.row<float>(r);
        double* const row = to.data() + i * k;
        for (int64_t j = 0; j < k; ++j) row[j] += by * double(from[j]);
      }
  });
}

// Rows or columns of `to` [n, k] brought to the norms of a magnitude.
void bring_to(const WeightChange& change, int64_t n, int64_t k, Rows& to) {
  const bool columns = change.by_columns;
  std::vector<double> squares(static_cast<size_t>(columns ? k : n));
  const auto place = [&](int64_t i, int64_t j) { return static_cast<size_t>(columns ? j : i); };
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) {
      const double value = to[static_cast<size_t>(i * k + j)];
      squares[place(i, j)] += value * value;
    }
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) {
      const size_t at = place(i, j);
      const double norm = std::sqrt(squares[at]);
      if (norm > 0)
        to[static_cast<size_t>(i * k + j)] *= double(change.magnitude.data<float>()[at]) / norm;
    }
}

}  // namespace

bool are_pairs(const std::vector<WeightChange>& changes) {
  return std::ranges::all_of(changes, [](const WeightChange& change) {
    return change.down.defined() && !change.dense && !change.magnitude.defined();
  });
}

WeightChange joined_pairs(const std::vector<WeightChange>& changes) {
  if (changes.size() == 1) return changes.front();
  std::vector<Tensor> downs, ups;
  for (const WeightChange& change : changes) {
    downs.push_back(change.down);
    ups.push_back(change.up);
  }
  WeightChange joined;
  joined.down = ops::concat_rows(downs);
  joined.up = ops::concat_columns(ups);
  return joined;
}

Tensor changed(const Tensor& matrix, const std::vector<WeightChange>& changes) {
  const int64_t n = matrix.size(0), k = matrix.size(1);
  if (matrix.is_meta()) return Tensor::empty({n, k}, DType::f32, matrix.device());
  const std::vector<float> values = matrix.to_floats();
  Rows whole(values.begin(), values.end());
  for (const WeightChange& change : changes) {
    const Rows before = change.magnitude.defined() ? whole : Rows();
    if (change.down.defined()) add_product(change.up, change.down, whole);
    if (change.dense) {
      const Tensor dense = change.dense();
      for (size_t i = 0; i < whole.size(); ++i) whole[i] += double(dense.data<float>()[i]);
    }
    if (!change.magnitude.defined()) continue;
    bring_to(change, n, k, whole);
    for (size_t i = 0; i < whole.size(); ++i)
      whole[i] = before[i] + double(change.blend) * (whole[i] - before[i]);
  }
  const Tensor result = Tensor::empty({n, k}, DType::f32);
  std::ranges::transform(whole, result.data<float>(),
                         [](double value) { return static_cast<float>(value); });
  return result;
}

}  // namespace tessera::nn
