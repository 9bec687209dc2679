#pragma once

#include <array>
#include <cstddef>
#include <map>

namespace tessera::sample {

/// A latent as a linear combination of an earlier latent and the estimates made since, by step.
/// Solvers that need a latent of some steps ago recover its value from the present latent by this
/// form.
struct LinearForm {
  double x = 0;
  std::map<size_t, double> estimates;

  void add(double factor, const LinearForm& other) {
    x += factor * other.x;
    for (const auto& [step, c] : other.estimates) estimates[step] += factor * c;
  }
  /// The same combination over a latent `now`, which is a form of the earlier latent.
  LinearForm from(const LinearForm& now) const {
    LinearForm result{x / now.x, estimates};
    for (const auto& [step, c] : now.estimates) result.estimates[step] -= result.x * c;
    return result;
  }
  /// Coefficients of the estimates, from step `newest` backwards.
  std::array<double, 4> newest_first(size_t newest) const {
    std::array<double, 4> result{};
    for (const auto& [step, c] : estimates) result.at(newest - step) = c;
    return result;
  }
};

}  // namespace tessera::sample
