#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tessera::fused {

/// The number of experts of a rank; `owner[e]`: the rank of expert e.
inline int64_t owned_by(const std::vector<int>& owner, int rank) {
  return std::count(owner.begin(), owner.end(), rank);
}
/// The most experts of any of so many ranks, at least 1.
inline int64_t most_owned(const std::vector<int>& owner, int ranks) {
  int64_t most = 1;
  for (int rank = 0; rank < ranks; ++rank) most = std::max(most, owned_by(owner, rank));
  return most;
}

}  // namespace tessera::fused
