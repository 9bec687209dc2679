#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "sample/decode.h"
#include "tessera/complete.h"
#include "tokenizer/byte_level_bpe.h"

namespace tessera::completion {

/// A token with its log probability, as a tokenizer (null: none) spells it.
Completion::TokenLogprob logprob_of(const tokenizer::ByteLevelBpe* tokens, int32_t id,
                                    double logprob);

/// What was known of each token of a sequence when it was said. Tokens that a pass moves take it
/// with them.
class SaidTokens {
 public:
  struct Said {
    double confidence = 0;
    Completion::Logprobs logprobs{};  ///< if they were asked for
  };
  /// Of a token and a row of the pass's logits.
  using LogprobsOf = std::function<Completion::Logprobs(int64_t row, int32_t token)>;

  /// What a pass committed; `logprobs_of` may be empty. How many tokens it said.
  int64_t take(const sample::SequencePass& pass, int32_t mask, const LogprobsOf& logprobs_of);
  /// Of a position; nothing was said where nothing stands.
  Said at(int64_t position) const {
    const auto found = said_.find(position);
    return found == said_.end() ? Said() : found->second;
  }

 private:
  std::map<int64_t, Said> said_;  // by position
};

}  // namespace tessera::completion
