#include "sample/decode.h"

#include <utility>

#include "base/fail.h"
#include "ops/finite.h"

namespace tessera::sample {
namespace {

using tensor::Tensor;

// A forward pass over all sequences that have one to make.
struct Batch {
  nn::TokenView view{-1, {}, {}, {}, {}};
  nn::Segments decide;
  std::vector<int32_t> ids;
};

Batch pack(const std::vector<RowPass>& passes,
           const std::vector<std::unique_ptr<BlockWalk>>& walks) {
  Batch batch;
  for (const RowPass& p : passes) {
    const auto& ids = walks[size_t(p.row)]->ids();
    batch.view.rows.push_back(p.row);
    batch.view.body.push_back({p.row, p.pass.ids});
    batch.view.lengths.push_back(p.pass.length);
    if (p.pass.decide.size() > 0) batch.decide.push_back({p.row, p.pass.decide});
    batch.ids.insert(batch.ids.end(), ids.begin() + p.pass.ids.begin, ids.begin() + p.pass.ids.end);
  }
  return batch;
}

// With `look` every block's tokens are checked, wherever they are.
Tensor forward(const nn::TokenModel& model, const Batch& batch, const nn::Seams& seams, int pass,
               bool look) {
  const nn::StepInfo info{pass, 0, true, true};
  seams.attention.begin_step(info);
  seams.experts.begin_step(info);
  const auto placement = model.place(batch.view);
  nn::Hidden hidden = model.embed(batch.ids, batch.view);
  const Tensor& tokens = hidden.tokens.body;
  look |= !tokens.defined() ||
          tokens.device() == tensor::Device::cpu;  // there it costs nothing beside a block
  if (look) ops::require_finite(tokens, "the embedding");
  for (int b = 0; b < model.geometry().blocks; ++b) {
    model.block(b, {}, *placement, hidden, seams);
    if (look) ops::require_finite(tokens, fmt::format("block {}", b));
  }
  return model.logits(hidden, batch.view, batch.decide);
}

// Logits on the host, all of them numbers; else the pass is made again to find the block that
// spoils them.
Tensor checked_forward(const nn::TokenModel& model, const Batch& batch, const nn::Seams& seams,
                       int pass) {
  const Tensor logits = forward(model, batch, seams, pass, false).to(tensor::Device::cpu);
  if (ops::all_finite(logits)) return logits;
  ops::require_finite(forward(model, batch, seams, pass, true), "the head");
  return logits;
}

MaskedLogits masked(const Tensor& logits, const Pass& pass, const BlockWalk& walk,
                    const SpecialIds& special, int64_t passes) {
  MaskedLogits in{{}, {}, logits.size(1), special.mask, passes};
  for (int64_t i = pass.decide.begin; i < pass.decide.end; ++i)
    if (walk.ids()[size_t(i)] == special.mask) {
      in.positions.push_back(i);
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

std::vector<Decoded> decode(const nn::TokenModel& model, const std::vector<TokenPrompt>& prompts,
                            const DecodingPolicy& policy, const SpecialIds& special,
                            bool block_causal, const nn::Seams& seams,
                            const DecodeControl& control) {
  check_policy(policy, block_causal);
  std::vector<std::unique_ptr<BlockWalk>> walks;
  for (const TokenPrompt& p : prompts)
    walks.push_back(block_walk(p.ids, p.max_tokens, policy, special, block_causal));
  std::vector<Decoded> out(prompts.size());
  for (int pass = 0;; ++pass) {
    require(!control.stop.stop_requested(), ErrorCode::cancelled, "stopped after {} passes", pass);
    std::vector<RowPass> passes;
    for (size_t r = 0; r < walks.size(); ++r)
      if (const auto next = walks[r]->next()) passes.push_back({int(r), *next, {}});
    if (passes.empty()) break;
    if (control.before) control.before(passes);
    const Tensor logits = checked_forward(model, pack(passes, walks), seams, pass);
    int64_t at = 0;
    for (RowPass& p : passes) {
      BlockWalk& walk = *walks[size_t(p.row)];
      const Tensor mine = logits.slice(0, at, at + p.pass.decide.size());
      at += p.pass.decide.size();
      int64_t& made = out[size_t(p.row)].passes;
      if (p.pass.decide.size() > 0)
        p.commits = walk.rule().choose(masked(mine, p.pass, walk, special, made));
      ++made;
      walk.commit(p.pass, p.commits);
      if (control.after && !control.after(p, walk, mine)) walk.cancel();
    }
  }
  seams.attention.finish();
  seams.experts.finish();
  for (size_t r = 0; r < walks.size(); ++r) {
    out[r].ids = walks[r]->ids();
    out[r].generated = walks[r]->generated();
    out[r].ended = walks[r]->ended();
  }
  return out;
}

}  // namespace tessera::sample
