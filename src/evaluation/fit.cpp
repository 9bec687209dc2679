#include "evaluation/fit.h"

#include <cmath>
#include <numeric>

namespace tessera::evaluation {
namespace {

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace

Fit fit_two(const std::vector<double>& x, const std::vector<double>& z,
            const std::vector<double>& y) {
  const double xx = dot(x, x), zz = dot(z, z), xz = dot(x, z), xy = dot(x, y), zy = dot(z, y);
  const double determinant = xx * zz - xz * xz;
  if (y.size() < 3 || determinant <= 1e-12 * xx * zz) return {};
  Fit fit{(xy * zz - zy * xz) / determinant, (zy * xx - xy * xz) / determinant, 0};
  const double mean = std::accumulate(y.begin(), y.end(), 0.0) / double(y.size());
  double residual = 0, total = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    residual += std::pow(y[i] - fit.a * x[i] - fit.b * z[i], 2);
    total += std::pow(y[i] - mean, 2);
  }
  fit.r2 = total > 0 ? 1 - residual / total : 0;
  return fit;
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  const double size = std::sqrt(dot(a, a) * dot(b, b));
  return size > 0 ? dot(a, b) / size : 0;
}

}  // namespace tessera::evaluation
