#pragma once

#include <functional>
#include <stop_token>
#include <vector>

#include "nn/block_stack.h"
#include "sample/block_walk.h"

namespace tessera::sample {

/// A prompt of token ids, and the maximal length of an answer.
struct TokenPrompt {
  std::vector<int32_t> ids;
  int64_t max_tokens = 0;
  uint64_t answer = 0;  ///< number of the answer, added to the policy's seed
  int64_t kept = 0;     ///< first tokens, in whole blocks, with cached keys and values
  int64_t held = 0;     ///< tokens of the conversation that these come from
};

/// A sequence's share of a forward pass.
struct SequencePass {
  int sequence = 0;  ///< index of the prompt
  Pass pass;
  std::vector<int64_t> open{};         ///< positions to fill in, with logits in the result
  std::vector<Prediction> commits{};   ///< filled in after the pass
  std::vector<nn::Range> undecided{};  ///< undecided before the pass
  bool canvas = false;                 ///< true: the tokens are denoised; false: read as text
};

/// The result of a prompt.
struct Decoded {
  std::vector<int32_t> ids;        ///< the prompt and everything after it
  std::vector<int32_t> generated;  ///< the result
  bool ended = false;              ///< by end of text; else by length
  int64_t passes = 0;              ///< forward passes of the sequence
};

/// Callbacks of a caller to observe and stop.
struct DecodeControl {
  std::stop_token stop;
  /// Called before each forward pass, with its sequences.
  std::function<void(const std::vector<SequencePass>&)> before;
  /// Called after the pass for each sequence, with the committed tokens, the state of the walk, and
  /// the f32 logits [open, vocabulary] of the decision on their device; false ends the sequence.
  std::function<bool(const SequencePass&, const BlockWalk&, const tensor::Tensor& logits)> after;
  /// Called before each pass: returns new prompts to join from this pass on, numbered after the
  /// existing prompts.
  std::function<std::vector<TokenPrompt>()> join;
  /// Called when a sequence has ended, before the next pass of the others.
  std::function<void(int sequence, const Decoded&)> ended;
};

/// Tokens of each sequence, the same from the first pass to the last. Throws Error(usage) for
/// invalid prompts and policies.
std::vector<int64_t> sequence_lengths(const std::vector<TokenPrompt>& prompts,
                                      const DecodingPolicy& policy, bool block_causal);

/// A forward pass over all unfinished sequences.
struct TokenPass {
  int index = 0;
  nn::TokenView view{};
  nn::Segments decide{};        ///< tokens with logits in the result; in the order of view.body
  std::vector<int32_t> ids{};   ///< ids of view.body
  nn::EarlierLogits earlier{};  ///< canvases: logits of the previous pass as a condition
};
/// -> logits f32 [tokens of pass.decide, vocabulary], on any device.
using ForwardPass = std::function<tensor::Tensor(const TokenPass& pass)>;

/// The loop of masked diffusion decoding for any policy. Prompts of any lengths form a batch; each
/// result is the same as for the prompt alone, whenever the prompt joins. Ended sequences take part
/// in no further pass. Throws Error(usage) for invalid prompts, Error(cancelled) after a stop
/// request.
std::vector<Decoded> decode(const std::vector<TokenPrompt>& prompts, const DecodingPolicy& policy,
                            const SpecialIds& special, bool block_causal,
                            const ForwardPass& forward, const DecodeControl& control = {});

}  // namespace tessera::sample
