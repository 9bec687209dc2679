#include "parallel/experts/drift.h"

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "tensor/scope.h"

namespace tessera::parallel {

using tensor::DType;
using tensor::Tensor;

namespace {

constexpr int64_t kGrain = 64;

// On meta the tensor takes memory and holds no data.
Tensor on_host(const Tensor& rows) {
  return ops::cast(rows.is_meta() ? rows : rows.to(tensor::Device::cpu), DType::f32);
}

// Sums in a fixed order, so any number of ranks and threads chooses the same rows.
template <class Term>
std::vector<float> per_row(int64_t rows, int64_t columns, const Term& term) {
  std::vector<float> out(static_cast<size_t>(rows));
  tensor::parallel_for(rows, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[static_cast<size_t>(i)] = term(i, columns);
  });
  return out;
}

}  // namespace

std::vector<float> relative_moves(const Tensor& before, const Tensor& now) {
  const Tensor a = on_host(before), b = on_host(now);
  if (b.is_meta()) return std::vector<float>(static_cast<size_t>(b.size(0)));
  return per_row(b.size(0), b.size(1), [&](int64_t i, int64_t columns) {
    const float* x = a.data<float>() + i * a.stride(0);
    const float* y = b.data<float>() + i * b.stride(0);
    double path = 0, length = 0;
    for (int64_t c = 0; c < columns; ++c) {
      path += double(y[c] - x[c]) * double(y[c] - x[c]);
      length += double(x[c]) * double(x[c]);
    }
    return length > 0 ? static_cast<float>(std::sqrt(path / length)) : 0.0f;
  });
}

std::vector<float> row_lengths(const Tensor& rows) {
  const Tensor r = on_host(rows);
  if (r.is_meta()) return std::vector<float>(static_cast<size_t>(r.size(0)));
  return per_row(r.size(0), r.size(1), [&](int64_t i, int64_t columns) {
    const float* x = r.data<float>() + i * r.stride(0);
    double length = 0;
    for (int64_t c = 0; c < columns; ++c) length += double(x[c]) * double(x[c]);
    return static_cast<float>(std::sqrt(length));
  });
}

void largest_first(std::vector<Candidate>& candidates, int64_t count) {
  const auto middle = std::clamp<int64_t>(count, 0, static_cast<int64_t>(candidates.size()));
  std::nth_element(candidates.begin(), candidates.begin() + middle, candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return a.error != b.error ? a.error > b.error : a.assignment < b.assignment;
                   });
}

}  // namespace tessera::parallel
