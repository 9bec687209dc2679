#pragma once

#include <cstdint>
#include <vector>

namespace tessera::evaluation {

/// A share of trials with its 95 % interval by Wilson's score, valid near 0 and 1, too.
struct Share {
  double value = 0, low = 0, high = 1;
};
/// `right` of `trials` trials; without trials: 0 in [0, 1].
Share wilson(int64_t right, int64_t trials);

/// The same questions answered in two ways: McNemar's exact test, two-sided. p is the chance of an
/// equally uneven split of the different answers if both ways are equally good.
struct PairedChange {
  int64_t gained = 0, lost = 0;  ///< right only in the second way, only in the first
  double p = 1;
};
/// Flags of right answers, of equal count. Throws Error(usage) otherwise.
PairedChange mcnemar(const std::vector<uint8_t>& first, const std::vector<uint8_t>& second);

}  // namespace tessera::evaluation
