#include "sample/logprobs.h"

#include <algorithm>
#include <cmath>

#include "ops/sampling.h"

namespace tessera::sample {

std::vector<LogProbability> log_probabilities(std::span<const float> logits, int32_t mask,
                                              int32_t token, int64_t count) {
  std::vector<int32_t> ids;
  for (size_t v = 0; v < logits.size(); ++v)
    if (int32_t(v) != mask) ids.push_back(int32_t(v));
  const auto likelier = [&](int32_t a, int32_t b) {
    const float left = logits[size_t(a)], right = logits[size_t(b)];
    return left != right ? left > right : a < b;
  };
  const auto sorted_count = std::clamp<int64_t>(count, 1, int64_t(ids.size()));
  std::partial_sort(ids.begin(), ids.begin() + sorted_count, ids.end(), likelier);
  const ops::Peak peak = ops::peak(logits, mask);
  const double whole = double(peak.largest) + std::log(peak.sum);
  std::vector<LogProbability> out{{token, double(logits[size_t(token)]) - whole}};
  for (int64_t i = 0; i < std::min(count, sorted_count); ++i)
    out.push_back({ids[size_t(i)], double(logits[size_t(ids[size_t(i)])]) - whole});
  return out;
}

}  // namespace tessera::sample
