#include "evaluation/shares.h"

#include <algorithm>
#include <cmath>

#include "base/fail.h"

namespace tessera::evaluation {

Share wilson(int64_t right, int64_t trials) {
  if (trials == 0) return {};
  constexpr double z = 1.959963984540054;
  const auto n = double(trials);
  const double share = double(right) / n, wide = 1 + z * z / n;
  const double middle = (share + z * z / (2 * n)) / wide;
  const double half = z / wide * std::sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  return {share, std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

PairedChange mcnemar(const std::vector<uint8_t>& first, const std::vector<uint8_t>& second) {
  require(first.size() == second.size(), ErrorCode::usage, "{} answers compared with {}",
          first.size(), second.size());
  PairedChange change;
  for (size_t i = 0; i < first.size(); ++i) {
    change.gained += !first[i] && second[i];
    change.lost += first[i] && !second[i];
  }
  const auto n = double(change.gained + change.lost);
  const int64_t few = std::min(change.gained, change.lost);
  double tail = 0;  // tail of tosses of a fair coin
  for (int64_t k = 0; k <= few; ++k)
    tail += std::exp(std::lgamma(n + 1) - std::lgamma(double(k) + 1) -
                     std::lgamma(n - double(k) + 1) - n * std::log(2.0));
  change.p = std::min(1.0, 2 * tail);
  return change;
}

}  // namespace tessera::evaluation
