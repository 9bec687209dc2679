#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::evaluation {

/// A mean and half the width of its 95 % confidence interval (normal approximation).
struct Interval {
  double mean = 0, half = 0;
};
Interval interval(const std::vector<double>& samples);

/// |a - b| / |b|, L2.
double relative_error(std::span<const float> a, std::span<const float> b);
/// Peak signal-to-noise ratio of bytes, in dB; at most 100, for equal images.
double psnr(std::span<const uint8_t> a, std::span<const uint8_t> b);

}  // namespace tessera::evaluation
