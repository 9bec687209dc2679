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

/// Log probabilities from f32 logits, by a softmax in double over all tokens but the mask: first of
/// `token`, then of the `count` likeliest in falling order; ties: the lowest id first.
std::vector<LogProbability> log_probabilities(std::span<const float> logits, int32_t mask,
                                              int32_t token, int64_t count);

}  // namespace tessera::sample
