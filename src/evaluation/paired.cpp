#include "evaluation/paired.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"

namespace tessera::evaluation {

Interval interval(const std::vector<double>& samples) {
  const auto n = static_cast<double>(samples.size());
  if (samples.empty()) return {};
  double mean = 0, square = 0;
  for (double x : samples) mean += x / n;
  for (double x : samples) square += (x - mean) * (x - mean);
  if (samples.size() == 1) return {mean, 0};
  return {mean, 1.96 * std::sqrt(square / (n - 1) / n)};
}

double relative_error(std::span<const float> a, std::span<const float> b) {
  require(a.size() == b.size(), ErrorCode::usage, "{} values compared with {}", a.size(), b.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
    size += double(b[i]) * b[i];
  }
  return size > 0 ? std::sqrt(error / size) : std::sqrt(error);
}

double psnr(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  require(a.size() == b.size() && !a.empty(), ErrorCode::usage,
          "images of {} and {} bytes compared", a.size(), b.size());
  double error = 0;
  for (size_t i = 0; i < a.size(); ++i) error += (double(a[i]) - b[i]) * (double(a[i]) - b[i]);
  error /= static_cast<double>(a.size());
  return error > 0 ? std::min(100.0, 10 * std::log10(255.0 * 255.0 / error)) : 100;
}

}  // namespace tessera::evaluation
