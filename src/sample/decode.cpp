#include "sample/decode.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"

namespace tessera::sample {
namespace {

using tensor::Tensor;

// Masks, and tokens that may be edited: no rule looks at what is said of others.
std::vector<int64_t> open_positions(const Pass& pass, const BlockWalk& walk,
                                    const SpecialIds& special) {
  std::vector<int64_t> open;
  for (int64_t i = pass.decide.begin; i < pass.decide.end; ++i)
    if (walk.ids()[size_t(i)] == special.mask || walk.may_edit(i)) open.push_back(i);
  return open;
}

TokenPass pack(int index, const std::vector<SequencePass>& passes,
               const std::vector<std::unique_ptr<BlockWalk>>& walks) {
  TokenPass batch{index, {}, {}, {}};
  for (const SequencePass& p : passes) {
    const auto& ids = walks[size_t(p.sequence)]->ids();
    batch.view.sequences.push_back(p.sequence);
    batch.view.body.push_back({p.sequence, p.pass.ids});
    batch.view.lengths.push_back(p.pass.length);
    for (size_t i = 0; i < p.open.size(); ++i)
      if (i > 0 && p.open[i] == p.open[i - 1] + 1)
        ++batch.decide.back().ids.end;
      else
        batch.decide.push_back({p.sequence, {p.open[i], p.open[i] + 1}});
    batch.ids.insert(batch.ids.end(), ids.begin() + p.pass.ids.begin, ids.begin() + p.pass.ids.end);
  }
  return batch;
}

OpenLogits open_logits(const Tensor& logits, const SequencePass& p, const BlockWalk& walk,
                       const SpecialIds& special, int64_t choices) {
  OpenLogits in{p.open, {}, {}, logits.size(1), special.mask, choices};
  for (const int32_t id : walk.ids())
    if (id != special.mask && std::ranges::count(special.ends, id) == 0) in.said.push_back(id);
  for (size_t i = 0; i < p.open.size(); ++i) {
    in.held.push_back(walk.ids()[size_t(p.open[i])]);
    in.rows.push_back(logits.row<float>(int64_t(i)));
  }
  return in;
}

}  // namespace

std::vector<int64_t> sequence_lengths(const std::vector<TokenPrompt>& prompts,
                                      const DecodingPolicy& policy, bool block_causal) {
  check_policy(policy, block_causal);
  std::vector<int64_t> lengths;
  for (const TokenPrompt& p : prompts)
    lengths.push_back(sequence_length(int64_t(p.ids.size()), p.max_tokens, policy, block_causal));
  return lengths;
}

std::vector<Decoded> decode(const std::vector<TokenPrompt>& prompts, const DecodingPolicy& policy,
                            const SpecialIds& special, bool block_causal,
                            const ForwardPass& forward, const DecodeControl& control) {
  check_policy(policy, block_causal);
  std::vector<std::unique_ptr<BlockWalk>> walks;
  for (const TokenPrompt& p : prompts) {
    DecodingPolicy own = policy;
    own.seed += p.answer;
    walks.push_back(block_walk(p.ids, p.max_tokens, own, special, block_causal, p.kept));
  }
  std::vector<Decoded> out(prompts.size());
  std::vector<int64_t> choices(prompts.size());
  for (int pass = 0;; ++pass) {
    require(!control.stop.stop_requested(), ErrorCode::cancelled, "stopped after {} passes", pass);
    std::vector<SequencePass> passes;
    for (size_t r = 0; r < walks.size(); ++r)
      if (const auto next = walks[r]->next())
        passes.push_back({int(r), *next, open_positions(*next, *walks[r], special), {}});
    if (passes.empty()) break;
    if (control.before) control.before(passes);
    const Tensor logits = forward(pack(pass, passes, walks));
    int64_t at = 0;
    for (SequencePass& p : passes) {
      BlockWalk& walk = *walks[size_t(p.sequence)];
      const auto count = int64_t(p.open.size());
      const Tensor mine = logits.slice(0, at, at + count);
      at += count;
      if (count > 0)
        p.commits =
            walk.rule().choose(open_logits(mine, p, walk, special, choices[size_t(p.sequence)]++));
      ++out[size_t(p.sequence)].passes;
      walk.commit(p.pass, p.commits);
      if (control.after && !control.after(p, walk, mine)) walk.cancel();
    }
  }
  for (size_t r = 0; r < walks.size(); ++r) {
    out[r].ids = walks[r]->ids();
    out[r].generated = walks[r]->generated();
    out[r].ended = walks[r]->ended();
  }
  return out;
}

}  // namespace tessera::sample
