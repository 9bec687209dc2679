#include "sample/beta_quantile.h"

#include <cmath>

#include "base/fail.h"

namespace tessera::sample {
namespace {

// The share below x <= 1/2: x^a (1 - x)^a / (a B(a, a)) times a hypergeometric series with terms
// that shrink by x.
double share_below(double x, double a) {
  if (x <= 0) return 0;
  double term = 1, sum = 1;
  for (int n = 0; term > 1e-17 * sum; ++n) {
    term *= x * (2 * a + n) / (a + 1 + n);
    sum += term;
  }
  const double log_beta = 2 * std::lgamma(a) - std::lgamma(2 * a);
  return std::exp(a * (std::log(x) + std::log1p(-x)) - log_beta) / a * sum;
}

}  // namespace

double beta_quantile(double p, double shape) {
  require(p >= 0 && p <= 1 && shape > 0 && shape <= 10, ErrorCode::usage,
          "beta_quantile: no place for a share of {} at shape {}", p, shape);
  if (p > 0.5) return 1 - beta_quantile(1 - p, shape);
  double low = 0, high = 0.5;
  for (int i = 0; i < 1100 && low < high; ++i) {
    const double middle = low + (high - low) / 2;
    if (middle == low || middle == high) break;
    (share_below(middle, shape) < p ? low : high) = middle;
  }
  return p == 0 ? 0 : high;
}

}  // namespace tessera::sample
