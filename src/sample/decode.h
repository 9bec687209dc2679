#pragma once

#include <functional>
#include <stop_token>
#include <vector>

#include "nn/block_stack.h"
#include "sample/block_walk.h"

namespace tessera::sample {

/// A prompt of token ids and how many tokens may follow it.
struct TokenPrompt {
  std::vector<int32_t> ids;
  int64_t max_tokens = 0;
  uint64_t answer = 0;  ///< of several answers to it: added to the policy's seed
  int64_t kept = 0;     ///< first tokens, whole blocks, whose keys and values are there already
};

/// One sequence's share of a forward pass.
struct SequencePass {
  int sequence = 0;  ///< index of the prompt
  Pass pass;
  std::vector<int64_t> open{};  ///< positions that it may fill in: those whose logits are wanted
  std::vector<Prediction> commits{};   ///< filled in after the pass
  std::vector<nn::Range> undecided{};  ///< tokens that no earlier pass decided
  bool canvas = false;                 ///< its tokens are denoised; else read as text
};

/// What became of a prompt.
struct Decoded {
  std::vector<int32_t> ids;        ///< prompt and all that stands behind it
  std::vector<int32_t> generated;  ///< the result
  bool ended = false;              ///< by end of text; else by length
  int64_t passes = 0;              ///< forward passes that it took part in
};

/// What a caller may watch and stop.
struct DecodeControl {
  std::stop_token stop;
  /// Before each forward pass: the sequences in it.
  std::function<void(const std::vector<SequencePass>&)> before;
  /// After it: what each committed, where it stands, and the f32 logits [open, vocabulary] it
  /// was decided on, where the pass left them; false ends the sequence.
  std::function<bool(const SequencePass&, const BlockWalk&, const tensor::Tensor& logits)> after;
  /// Before each pass: prompts that take part from it on, numbered behind those that there are.
  std::function<std::vector<TokenPrompt>()> join;
  /// A sequence has ended, before the next pass of the others.
  std::function<void(int sequence, const Decoded&)> ended;
};

/// Tokens of each sequence from its first pass to its last. Throws Error(usage) for prompts and
/// policies that do not fit.
std::vector<int64_t> sequence_lengths(const std::vector<TokenPrompt>& prompts,
                                      const DecodingPolicy& policy, bool block_causal);

/// A forward pass over all sequences that have one to make.
struct TokenPass {
  int index = 0;
  nn::TokenView view{};
  nn::Segments decide{};        ///< whose logits are wanted; parts of view.body, in its order
  std::vector<int32_t> ids{};   ///< of view.body
  nn::EarlierLogits earlier{};  ///< canvases: what conditions the pass
};
/// -> logits f32 [tokens of pass.decide, vocabulary], on any device.
using ForwardPass = std::function<tensor::Tensor(const TokenPass& pass)>;

/// The one loop of masked diffusion decoding: prompts of any lengths as one batch, each as if it
/// were alone, under any policy, whenever it joins. A sequence that has ended is in no further
/// pass. Throws Error(usage) for prompts that do not fit, Error(cancelled) after a stop request.
std::vector<Decoded> decode(const std::vector<TokenPrompt>& prompts, const DecodingPolicy& policy,
                            const SpecialIds& special, bool block_causal,
                            const ForwardPass& forward, const DecodeControl& control = {});

}  // namespace tessera::sample
