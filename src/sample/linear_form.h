#pragma once

#include <array>
#include <cstddef>
#include <map>

namespace tessera::sample {

/// A latent as a sum over an earlier one and the estimates made since, by the step they were made
/// in. Solvers that go back to a latent of some steps ago find it in the present one this way.
struct LinearForm {
  double x = 0;
  std::map<size_t, double> estimates;

  void add(double factor, const LinearForm& other) {
    x += factor * other.x;
    for (const auto& [step, c] : other.estimates) estimates[step] += factor * c;
  }
  /// The same sum over a latent that is itself `now` of the earlier one.
  LinearForm from(const LinearForm& now) const {
    LinearForm result{x / now.x, estimates};
    for (const auto& [step, c] : now.estimates) result.estimates[step] -= result.x * c;
    return result;
  }
  /// Coefficients of the estimate of step `newest`, of the one before, ...
  std::array<double, 4> newest_first(size_t newest) const {
    std::array<double, 4> result{};
    for (const auto& [step, c] : estimates) result.at(newest - step) = c;
    return result;
  }
};

}  // namespace tessera::sample
