#include "sample/decode.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "ops/elementwise.h"

namespace tessera::sample {
namespace {

using tensor::Tensor;

// Masks, and tokens that may be edited; rules ignore predictions elsewhere.
std::vector<int64_t> open_positions(const Pass& pass, const BlockWalk& walk,
                                    const SpecialIds& special) {
  std::vector<int64_t> open;
  for (int64_t i = pass.decide.begin; i < pass.decide.end; ++i)
    if (walk.ids()[size_t(i)] == special.mask || walk.may_edit(i)) open.push_back(i);
  return open;
}

TokenPass pack(int index, const std::vector<SequencePass>& passes,
               const std::vector<std::unique_ptr<BlockWalk>>& walks) {
  TokenPass batch{.index = index};
  std::vector<Tensor> earlier;
  for (const SequencePass& p : passes) {
    const BlockWalk& walk = *walks[size_t(p.sequence)];
    const auto& ids = walk.ids();
    if (p.canvas) {
      batch.view.canvas.push_back(p.pass.ids.begin);
      if (const Tensor* logits = walk.earlier()) {
        batch.earlier.tokens.push_back({p.sequence, p.pass.ids});
        earlier.push_back(*logits);
      }
    }
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
  if (!earlier.empty())
    batch.earlier.logits = earlier.size() == 1 ? earlier[0] : ops::concat_rows(earlier);
  return batch;
}

OpenLogits open_logits(const Tensor& logits, const SequencePass& p, const BlockWalk& walk,
                       const SpecialIds& special, int64_t choices) {
  OpenLogits in{p.open, {}, logits, special.mask, choices};
  for (const int32_t id : walk.ids())
    if (id != special.mask && std::ranges::count(special.ends, id) == 0) in.said.push_back(id);
  for (const int64_t at : p.open) in.held.push_back(walk.ids()[size_t(at)]);
  return in;
}

/// The walks of all sequences in their current state.
class Walks {
 public:
  Walks(const DecodingPolicy& policy, const SpecialIds& special, bool block_causal)
      : policy_(policy), special_(special), block_causal_(block_causal) {}

  void add(const TokenPrompt& p) {
    DecodingPolicy own = policy_;
    own.seed += p.answer;
    walks.push_back(block_walk(p.ids, p.max_tokens, own, special_, block_causal_, p.kept));
    out.emplace_back();
    choices.push_back(0);
    over_.push_back(false);
  }
  /// Appends the next passes of the sequences from `first` on, and reports ended sequences.
  void next(size_t first, std::vector<SequencePass>& passes, const DecodeControl& control) {
    for (size_t r = first; r < walks.size(); ++r) {
      if (over_[r]) continue;
      BlockWalk& walk = *walks[r];
      if (const auto next = walk.next()) {
        passes.push_back({.sequence = int(r),
                          .pass = *next,
                          .open = open_positions(*next, walk, special_),
                          .undecided = walk.undecided(next->decide),
                          .canvas = policy_.denoises() && next->kind == PassKind::block});
        continue;
      }
      over_[r] = true;
      out[r].ids = walk.ids();
      out[r].generated = walk.generated();
      out[r].ended = walk.ended();
      if (control.ended) control.ended(int(r), out[r]);
    }
  }

  /// Decides and commits tokens by the logits of a forward pass.
  void take(std::vector<SequencePass>& passes, const Tensor& logits, const DecodeControl& control) {
    int64_t at = 0;
    for (SequencePass& p : passes) {
      const auto r = size_t(p.sequence);
      BlockWalk& walk = *walks[r];
      const auto count = int64_t(p.open.size());
      const Tensor own_logits = logits.slice(0, at, at + count);
      at += count;
      if (count > 0)
        p.commits = walk.rule().choose(open_logits(own_logits, p, walk, special_, choices[r]++));
      ++out[r].passes;
      walk.commit(p.pass, p.commits);
      if (control.after && !control.after(p, walk, own_logits)) walk.cancel();
    }
  }

  std::vector<std::unique_ptr<BlockWalk>> walks;
  std::vector<Decoded> out;
  std::vector<int64_t> choices;  // choices made in each sequence

 private:
  const DecodingPolicy& policy_;
  const SpecialIds& special_;
  bool block_causal_;
  std::vector<bool> over_;
};

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
  Walks state(policy, special, block_causal);
  for (const TokenPrompt& p : prompts) state.add(p);
  for (int pass = 0;;) {
    require(!control.stop.stop_requested(), ErrorCode::cancelled, "stopped after {} passes", pass);
    std::vector<SequencePass> passes;
    state.next(0, passes, control);
    const size_t before = state.walks.size();
    if (control.join)
      for (const TokenPrompt& p : control.join()) state.add(p);
    state.next(before, passes, control);
    if (passes.empty()) break;
    // A model reads text in one mode and denoises canvases in another: two forward passes.
    std::vector<SequencePass> text, canvases;
    for (SequencePass& p : passes) (p.canvas ? canvases : text).push_back(std::move(p));
    for (std::vector<SequencePass>* group : {&text, &canvases}) {
      if (group->empty()) continue;
      if (control.before) control.before(*group);
      state.take(*group, forward(pack(pass++, *group, state.walks)), control);
    }
  }
  return std::move(state.out);
}

}  // namespace tessera::sample
