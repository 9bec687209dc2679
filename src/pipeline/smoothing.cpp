#include "pipeline/smoothing.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "tensor/uncounted.h"

namespace tessera::pipeline {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr double kExponents[] = {0.25, 0.5, 0.75};
constexpr double kGain = 0.98;   // a lower error is below this share of the error without factors
constexpr float kLeast = 1e-5f;  // replaces magnitudes of channels without inputs or weights

// The largest magnitude of each column.
std::vector<float> column_peaks(const Tensor& w) {
  std::vector<float> peaks(static_cast<size_t>(w.size(1)), kLeast);
  for (int64_t r = 0; r < w.size(0); ++r) {
    const float* row = w.row<float>(r);
    for (size_t i = 0; i < peaks.size(); ++i) peaks[i] = std::max(peaks[i], std::fabs(row[i]));
  }
  return peaks;
}

Tensor factors_of(const std::vector<float>& inputs, const std::vector<float>& columns, double a) {
  std::vector<double> logs(columns.size());
  double sum = 0;
  for (size_t i = 0; i < logs.size(); ++i)
    sum += logs[i] = a * std::log(std::max(inputs[i], kLeast)) - (1 - a) * std::log(columns[i]);
  std::vector<float> factors(logs.size());
  for (size_t i = 0; i < factors.size(); ++i)
    factors[i] = static_cast<float>(std::exp(logs[i] - sum / static_cast<double>(logs.size())));
  return Tensor::from(std::span<const float>(factors), {static_cast<int64_t>(factors.size())});
}

double squared_distance(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = a.to_floats(), y = b.to_floats();
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (double{x[i]} - y[i]) * (double{x[i]} - y[i]);
  return sum;
}

}  // namespace

Tensor inverse_of(const Tensor& x) {
  std::vector<float> values = x.to_floats();
  for (float& value : values) value = 1 / value;
  return Tensor::from(std::span<const float>(values), x.shape());
}

Tensor smoothing_factors(const Tensor& w, const nn::InputRecord& inputs, bool int4) {
  const tensor::Uncounted aside(tensor::Counts::work);
  const Tensor floats = ops::cast(w, DType::f32), rows = inputs.rows();
  const ops::MatmulOptions wide{.out = DType::f32, .out_as_input = false};
  const Tensor exact = ops::matmul(rows, ops::pack_weight(floats, DType::f32), wide);
  const auto error = [&](const Tensor& factors) {
    const Tensor columns = factors.defined() ? ops::multiply_row(floats, factors) : floats;
    const Tensor scaled = factors.defined() ? ops::multiply_row(rows, inverse_of(factors)) : rows;
    const auto weight =
        ops::pack_weight(ops::quantised(columns, int4), ops::WeightForm::of_rows(int4));
    return squared_distance(ops::matmul(ops::cast(scaled, DType::bf16), weight, wide), exact);
  };
  const std::vector<float> most = inputs.largest().to_floats(), columns = column_peaks(floats);
  Tensor best;
  double least = error({}) * kGain * kGain;
  for (const double a : kExponents) {
    const Tensor factors = factors_of(most, columns, a);
    const double e = error(factors);
    if (e < least) {
      least = e;
      best = factors;
    }
  }
  return best;
}

}  // namespace tessera::pipeline
