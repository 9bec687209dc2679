#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sample/decoding_policy.h"
#include "tensor/tensor.h"

namespace tessera::sample {

/// A predicted token at a position, or a token moved there by an edit of the block's length.
struct Prediction {
  int64_t position = 0;
  int32_t token = 0;
  double confidence = 0;  ///< the token's, by a softmax in double over all tokens but the mask
  int64_t shift = 0;      ///< distance from the token's position in the pass
  bool moved = false;     ///< not predicted by the pass: an old token, or a new mask
  bool noise = false;     ///< a random token of a canvas, not predicted
  bool accepted = true;   ///< counts as decided by the pass; a canvas also takes the others
};

/// Parameters of a draw: DecodingPolicy's numbers, and the number of the draw.
struct Draw {
  double temperature = 0;  ///< 0: greedy
  uint64_t number = 0;
  int64_t top_k = 0;
  double top_p = 1;
};

/// The likeliest token of f32 logits except the mask; ties: the lowest id. With a temperature the
/// token is drawn (Gumbel noise, a function only of the draw's number and the token), but the
/// confidence is still the model's.
Prediction predict(std::span<const float> logits, int32_t mask, const Draw& draw = {});

/// Candidates of a draw, in rising order: among the `top_k` likeliest tokens (0: all, without the
/// mask; ties: the lowest id) the fewest likeliest with a total probability of `top_p`, at the
/// temperature and relative to the top_k.
std::vector<int32_t> drawn_from(std::span<const float> logits, int32_t mask, const Draw& draw);

/// The logits of a block's open positions, in rising order: its masks, and for an editing rule also
/// its generated tokens.
struct OpenLogits {
  std::vector<int64_t> positions;
  std::vector<int32_t> held;  ///< the current token or mask
  tensor::Tensor logits;      ///< f32 [positions, vocabulary], on any device
  int32_t mask = 0;
  int64_t call = 0;  ///< choices for the sequence so far: part of every draw
  /// Tokens of prompt and answer with repetitions, without masks and ends of text.
  std::vector<int32_t> said{};
};

/// Chooses the masks of a block that a pass fills in. An object belongs to a single sequence, and
/// may have memory.
class UnmaskingPolicy {
 public:
  virtual ~UnmaskingPolicy() = default;
  /// Begins a block with `masks` masks.
  virtual void begin_block(int64_t masks) = 0;
  /// Returns predictions in rising order of position; at least one while there are masks, unless
  /// lengths are edited.
  virtual std::vector<Prediction> choose(const OpenLogits& logits) = 0;
  /// Whether a block without masks needs another pass; none: the rule has no opinion.
  virtual std::optional<bool> goes_on() const { return {}; }
};
std::unique_ptr<UnmaskingPolicy> unmasking_policy(const DecodingPolicy& policy,
                                                  const SpecialIds& special = {});

/// Predictions of the model at each open position, drawn by the policy.
std::vector<Prediction> predictions(const OpenLogits& logits, const DecodingPolicy& policy);

/// A count cut into parts, larger parts first: 8 in 3 -> 3, 3, 2.
int64_t share_of(int64_t count, int64_t parts, int64_t index);

}  // namespace tessera::sample
