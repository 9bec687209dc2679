#include "completion/token_run.h"

#include <algorithm>

namespace tessera::completion {

TokenRun token_run_of(const std::vector<sample::TokenPrompt>& prompts,
                      const sample::DecodingPolicy& policy, const models::TokenSpec& spec,
                      const nn::SelectionRule& rule) {
  TokenRun run{sample::sequence_lengths(prompts, policy, spec.block_causal), policy.block,
               policy.block};
  run.joined = !policy.as_published;
  run.rule = rule;
  if (policy.denoises()) run.canvas = spec.vocabulary;
  for (const auto& prompt : prompts) {
    const auto tokens = static_cast<int64_t>(prompt.ids.size());
    if (policy.denoises())
      run.prefill.push_back(tokens);
    else if (policy.cache.kind == KvCache::block)
      run.prefill.push_back(tokens / policy.block * policy.block);
    run.kept.push_back({prompt.kept, prompt.held});
  }
  if (std::ranges::all_of(run.kept, [](const auto& prefix) { return prefix.tokens == 0; }))
    run.kept.clear();
  return run;
}

}  // namespace tessera::completion
