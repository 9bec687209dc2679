#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "sample/decode.h"
#include "tessera/complete.h"
#include "tokenizer/byte_level_bpe.h"

namespace tessera::completion {

/// A token with its log probability and spelling by a tokenizer (null: no spelling).
Completion::TokenLogprob logprob_of(const tokenizer::ByteLevelBpe* tokens, int32_t id,
                                    double logprob);

/// Records log probabilities and confidence of each token of a sequence at its decision. The record
/// moves along if a pass moves the token.
class TokenConfidences {
 public:
  struct Record {
    double confidence = 0;
    Completion::Logprobs logprobs{};  ///< if requested
  };
  /// Log probabilities of a token from a row of the pass's logits.
  using LogprobsOf = std::function<Completion::Logprobs(int64_t row, int32_t token)>;

  /// Records the tokens committed by a pass and returns their count; `logprobs_of` may be empty.
  int64_t take(const sample::SequencePass& pass, int32_t mask, const LogprobsOf& logprobs_of);
  /// The record of a position; an empty record without a token.
  Record at(int64_t position) const {
    const auto it = records_.find(position);
    return it == records_.end() ? Record() : it->second;
  }

 private:
  std::map<int64_t, Record> records_;  // by position
};

}  // namespace tessera::completion
