#pragma once

#include <vector>

namespace tessera::evaluation {

/// y = a x + b z by least squares, and the explained share of y's variance.
struct Fit {
  double a = 0, b = 0, r2 = 0;
};
/// For samples of equal count; zeros for proportional x and z, or fewer than three
/// samples.
Fit fit_two(const std::vector<double>& x, const std::vector<double>& z,
            const std::vector<double>& y);

/// The cosine of the angle between two vectors of equal size; 0 if one is all zeros.
double cosine(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace tessera::evaluation
