#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::sample {

/// A token and the natural logarithm of its probability.
struct LogProbability {
  int32_t token = 0;
  double value = 0;
};

/// Of f32 logits, by a softmax in double over all tokens but the mask: that of `token`, then those
/// of the `count` likeliest, falling; ties: the lowest id first.
std::vector<LogProbability> log_probabilities(std::span<const float> logits, int32_t mask,
                                              int32_t token, int64_t count);

}  // namespace tessera::sample
