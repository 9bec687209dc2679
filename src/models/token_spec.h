#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/block_stack.h"
#include "nn/moe/selection_rule.h"
#include "nn/weights.h"

namespace tessera::models {

/// Describes a language model family to the engine before weights are read. Filled by the family's
/// parse function.
struct TokenSpec {
  int64_t blocks = 0;
  /// Builds the network, or a rank's portion, for blocks of `block` tokens (0: the model's).
  std::function<std::unique_ptr<nn::TokenModel>(const nn::Weights&, const nn::Portion&, nn::DType,
                                                int block)>
      make;
  /// Loads a routed expert of a block with experts.
  std::function<ops::Expert(const nn::Weights&, int64_t block, int64_t expert, nn::DType)> expert;
  /// Sizes for `inspect`, named as in the configuration.
  std::vector<std::pair<std::string, std::string>> facts;

  int64_t vocabulary = 0, context = 0;  ///< number of ids; maximum positions
  std::optional<int32_t> mask;          ///< empty: defined by the tokenizer
  std::vector<int32_t> ends;            ///< end-of-text ids
  int32_t remove = -1, split = -1;  ///< ids that edit the length of a block (LLaDA2.2); -1: none
  int experts = 0, top_k = 0;
  bool block_causal = false;  ///< attention is causal between aligned blocks; else bidirectional
  bool canvas = false;        ///< denoises canvases of random tokens; otherwise fills masks
  int block = 32;             ///< default tokens of a block or canvas
  std::string decode = "threshold:0.9";  ///< default policy of committing tokens
  std::vector<int32_t> images{};         ///< ids of image tokens, refused in prompts
  std::vector<std::string> unread{};     ///< unused tensors: names, or prefixes with '*'
  nn::SelectionRule routing{};           ///< expert selection rule of the model, if any

  /// Portion with the whole network.
  nn::Portion whole() const { return {{0, blocks}, true, true}; }
};

}  // namespace tessera::models
