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

/// What a configuration of a language model means and how it is used: all that requests need to
/// know of a family before its weights are read, filled by the family's parse function.
struct TokenSpec {
  int64_t blocks = 0;
  /// Builds the network for blocks of so many tokens (0: the model's), or the part of it that a
  /// rank needs.
  std::function<std::unique_ptr<nn::TokenModel>(const nn::Weights&, const nn::Portion&, nn::DType,
                                                int block)>
      make;
  /// Reads one routed expert of a block with experts.
  std::function<ops::Expert(const nn::Weights&, int64_t block, int64_t expert, nn::DType)> expert;
  /// Sizes for `inspect`, by their configuration names.
  std::vector<std::pair<std::string, std::string>> facts;

  int64_t vocabulary = 0, context = 0;  ///< ids; positions
  std::optional<int32_t> mask;          ///< nothing: the tokenizer has to say
  std::vector<int32_t> ends;            ///< end-of-text ids
  int32_t remove = -1, split = -1;  ///< ids that edit the length of a block (LLaDA2.2); -1: none
  int experts = 0, top_k = 0;
  bool block_causal = false;  ///< blocks at absolute multiples of their length; else bidirectional
  bool canvas = false;        ///< denoises canvases of random tokens; else masks are filled in
  int block = 32;             ///< tokens of a block or canvas, unless the request says
  std::string decode = "threshold:0.9";  ///< what a pass commits, unless the request says
  std::vector<int32_t> images{};         ///< ids that stand for an image, which are refused
  std::vector<std::string>
      unread{};  ///< tensors of parts that are not computed: names, or beginnings and *
  nn::SelectionRule routing{};  ///< which experts tokens may use, if the model was made so

  /// The whole network as a portion.
  nn::Portion whole() const { return {{0, blocks}, true, true}; }
};

}  // namespace tessera::models
