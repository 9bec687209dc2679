#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "nn/block_stack.h"
#include "nn/weights.h"

namespace tessera::models {

/// What a request needs to know of a language model before its weights are read.
struct TokenFacts {
  int64_t vocabulary = 0, context = 0;  ///< ids; positions
  std::optional<int32_t> mask;          ///< nothing: the tokenizer has to say
  std::vector<int32_t> ends;            ///< end-of-text ids
  int experts = 0, top_k = 0;
  bool block_causal = false;  ///< blocks at absolute multiples of their length; else bidirectional
  int block = 32;             ///< tokens of a block, unless the request says
};

/// How a family of language models is used.
class TokenSpec {
 public:
  virtual ~TokenSpec() = default;
  virtual const TokenFacts& facts() const = 0;
  virtual int64_t blocks() const = 0;
  /// Builds the network for blocks of so many tokens, or the part of it that a rank needs.
  virtual std::unique_ptr<nn::TokenModel> make(const nn::Weights& weights,
                                               const nn::Portion& portion, nn::DType dtype,
                                               int block) const = 0;
  /// Sizes for `inspect`, by their configuration names.
  virtual std::vector<std::pair<std::string, std::string>> sizes() const = 0;
};

}  // namespace tessera::models
