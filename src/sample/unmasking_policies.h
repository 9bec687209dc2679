#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sample/decoding_policy.h"
#include "tensor/tensor.h"

namespace tessera::sample {

/// What the model says of one position, or what an edit of a block's length brings there.
struct Prediction {
  int64_t position = 0;
  int32_t token = 0;
  double confidence = 0;  ///< of the token, by a softmax in double over all but the mask
  int64_t shift = 0;      ///< places from where it was said, or stood, in the pass
  bool moved = false;     ///< not said by the pass: what stood there, or a new mask
  bool noise = false;     ///< a random token of a canvas, said by no pass
  bool accepted = true;   ///< counts as decided by the pass; a canvas takes the others as well
};

/// How a token is drawn: DecodingPolicy's numbers, and the number of the draw.
struct Draw {
  double temperature = 0;  ///< 0: greedy
  uint64_t number = 0;
  int64_t top_k = 0;
  double top_p = 1;
};

/// The likeliest token of f32 logits, the mask apart; ties: the lowest id. With a temperature the
/// token is drawn (Gumbel noise, a function of the draw's number and the token alone), its
/// confidence is still the model's.
Prediction predict(std::span<const float> logits, int32_t mask, const Draw& draw = {});

/// Tokens that may be drawn, rising: of the `top_k` likeliest (0: all, without the mask; ties: the
/// lowest id) the fewest likeliest whose probability, at the temperature and among them, is
/// `top_p`.
std::vector<int32_t> drawn_from(std::span<const float> logits, int32_t mask, const Draw& draw);

/// The logits of the positions of a block that a rule may fill in, in rising order of position: its
/// masks, and what was generated before them if the rule edits.
struct OpenLogits {
  std::vector<int64_t> positions;
  std::vector<int32_t> held;  ///< what stands there: the mask, or a token
  tensor::Tensor logits;      ///< f32 [positions, vocabulary], on any device
  int32_t mask = 0;
  int64_t call = 0;  ///< choices for the sequence so far: part of every draw
  /// Tokens that stand in prompt and answer, however often; masks and ends of text apart.
  std::vector<int32_t> said{};
};

/// Which of a block's masks a pass fills in. One object a sequence: it may remember.
class UnmaskingPolicy {
 public:
  virtual ~UnmaskingPolicy() = default;
  /// A new block with so many masks.
  virtual void begin_block(int64_t masks) = 0;
  /// In rising order of position; at least one as long as there are masks, but where lengths are
  /// edited.
  virtual std::vector<Prediction> choose(const OpenLogits& logits) = 0;
  /// Whether a block without masks needs another pass; nothing: the rule does not say.
  virtual std::optional<bool> goes_on() const { return {}; }
};
std::unique_ptr<UnmaskingPolicy> unmasking_policy(const DecodingPolicy& policy,
                                                  const SpecialIds& special = {});

/// What the model says of each open position, drawn as the policy wants.
std::vector<Prediction> predictions(const OpenLogits& logits, const DecodingPolicy& policy);

/// A count cut into parts, larger parts first: 8 in 3 -> 3, 3, 2.
int64_t share_of(int64_t count, int64_t parts, int64_t index);

}  // namespace tessera::sample
