#include "completion/token_confidences.h"

#include <algorithm>
#include <utility>

namespace tessera::completion {

Completion::TokenLogprob logprob_of(const tokenizer::ByteLevelBpe* tokens, int32_t id,
                                    double logprob) {
  if (!tokens) return {id, "", logprob};
  return {id, tokenizer::readable(tokens->bytes_of(id, false), true), logprob,
          tokens->bytes_of(id)};
}

int64_t TokenConfidences::take(const sample::SequencePass& pass, int32_t mask,
                               const LogprobsOf& logprobs_of) {
  const auto before = std::ranges::any_of(pass.commits, &sample::Prediction::moved)
                          ? records_
                          : std::map<int64_t, Record>();
  int64_t count = 0;
  for (const sample::Prediction& commit : pass.commits) {
    const int64_t from = commit.position - commit.shift;
    if (commit.token == mask || commit.noise) {
      records_.erase(commit.position);
    } else if (commit.moved) {
      const auto it = before.find(from);
      records_[commit.position] = it == before.end() ? Record{commit.confidence} : it->second;
    } else {
      Record& entry = records_[commit.position] = {commit.confidence};
      const auto row = std::ranges::lower_bound(pass.open, from) - pass.open.begin();
      if (logprobs_of) entry.logprobs = logprobs_of(row, commit.token);
      count += commit.accepted ? 1 : 0;
    }
  }
  return count;
}

}  // namespace tessera::completion
