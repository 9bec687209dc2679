#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/stopwatch.h"
#include "completion/answer_text.h"
#include "completion/token_confidences.h"
#include "models/token_spec.h"
#include "nn/moe/expert_cache.h"
#include "nn/moe/log.h"
#include "nn/moe/selection_policy.h"
#include "nn/moe/sequence_usage.h"
#include "sample/decode.h"
#include "tessera/complete.h"

namespace tessera::completion {

/// Callbacks of a study for a run on one rank; both may be empty.
struct PassWatch {
  /// Before each pass: the prompts under the selection rule, with the undecided runs of their
  /// tokens.
  std::function<void(const std::map<int, std::vector<nn::Range>>& prompts)> before;
  std::function<void(const nn::MoeWork&)> experts;  ///< each call of an MoE layer
};

/// Records the results of a batch, pass by pass.
struct Recorder {
  const CompleteRequest& request;
  const CompleteControl& control;
  const PassWatch& watch;
  const models::TokenSpec& spec;
  const sample::SpecialIds special;
  const tokenizer::ByteLevelBpe* tokens;
  nn::SelectionPolicy& policy;
  const nn::SelectionRule& rule;
  nn::ExpertCache* cache = nullptr;  // this rank's cache; null: all experts are in memory
  std::vector<sample::TokenPrompt> prompts{};
  std::vector<AnswerText> answers{};
  std::set<int> working{};  // unfinished sequences
  CompleteResult result{};
  nn::SequenceUsage usage{};
  std::vector<nn::SequenceUsage::Use> uses{};
  std::vector<TokenConfidences> confidences{};  // by sequence
  base::Stopwatch clock{}, pass{};
  bool fresh_uses = false;

  void add(const sample::TokenPrompt& prompt);
  /// Before each pass.
  void before(const std::vector<sample::SequencePass>& passes);
  /// Reads log probabilities from the pass's logits; empty if the request has none.
  TokenConfidences::LogprobsOf logprobs_in(const tensor::Tensor& logits) const;
  /// Call after each sequence of a pass; false: a stop text ended the sequence.
  bool after(const sample::SequencePass& p, const sample::BlockWalk& walk,
             const tensor::Tensor& logits);
  void ended(int sequence, const sample::Decoded& out);
};

}  // namespace tessera::completion
