#include "sample/decode.h"

#include <utility>

#include "base/fail.h"

namespace tessera::sample {
namespace {

using tensor::Tensor;

TokenPass pack(int index, const std::vector<SequencePass>& passes,
               const std::vector<std::unique_ptr<BlockWalk>>& walks) {
  TokenPass batch{index, {}, {}, {}};
  for (const SequencePass& p : passes) {
    const auto& ids = walks[size_t(p.sequence)]->ids();
    batch.view.sequences.push_back(p.sequence);
    batch.view.body.push_back({p.sequence, p.pass.ids});
    batch.view.lengths.push_back(p.pass.length);
    if (p.pass.decide.size() > 0) batch.decide.push_back({p.sequence, p.pass.decide});
    batch.ids.insert(batch.ids.end(), ids.begin() + p.pass.ids.begin, ids.begin() + p.pass.ids.end);
  }
  return batch;
}

OpenLogits open_logits(const Tensor& logits, const Pass& pass, const BlockWalk& walk,
                       const SpecialIds& special, int64_t passes) {
  OpenLogits in{{}, {}, {}, logits.size(1), special.mask, passes};
  for (int64_t i = pass.decide.begin; i < pass.decide.end; ++i)
    if (const int32_t held = walk.ids()[size_t(i)]; held == special.mask || walk.may_edit(i)) {
      in.positions.push_back(i);
      in.held.push_back(held);
      in.rows.push_back(logits.row<float>(i - pass.decide.begin));
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
  for (const TokenPrompt& p : prompts)
    walks.push_back(block_walk(p.ids, p.max_tokens, policy, special, block_causal));
  std::vector<Decoded> out(prompts.size());
  for (int pass = 0;; ++pass) {
    require(!control.stop.stop_requested(), ErrorCode::cancelled, "stopped after {} passes", pass);
    std::vector<SequencePass> passes;
    for (size_t r = 0; r < walks.size(); ++r)
      if (const auto next = walks[r]->next()) passes.push_back({int(r), *next, {}});
    if (passes.empty()) break;
    if (control.before) control.before(passes);
    const Tensor logits = forward(pack(pass, passes, walks));
    int64_t at = 0;
    for (SequencePass& p : passes) {
      BlockWalk& walk = *walks[size_t(p.sequence)];
      const Tensor mine = logits.slice(0, at, at + p.pass.decide.size());
      at += p.pass.decide.size();
      int64_t& made = out[size_t(p.sequence)].passes;
      if (p.pass.decide.size() > 0)
        p.commits = walk.rule().choose(open_logits(mine, p.pass, walk, special, made));
      ++made;
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
