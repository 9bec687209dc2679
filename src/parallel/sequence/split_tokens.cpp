#include "parallel/sequence/split_tokens.h"

#include <algorithm>

#include "base/fail.h"
#include "comm/collectives.h"
#include "ops/elementwise.h"

namespace tessera::parallel {
namespace {

using nn::Range;
using nn::Tensor;

// Rows of all ranks, in the order of ranks.
Tensor gathered(comm::Communicator& group, const Tensor& mine, const comm::Tag& tag) {
  return ops::concat_rows(comm::all_gather(group, mine, tag).wait());
}

}  // namespace

void TokenRuns::cut(const nn::TokenView& whole) {
  partition_ = Partition::of_pass(plan_, whole);
  mine_ = partition_.view(group_.rank());
  peers_.hold(whole.body, range().begin);
  mine_.peers = &peers_;
}

nn::PlacementPtr SplitTokenModel::place(const nn::TokenView& view) const {
  runs_->cut(view);
  return model_.place(runs_->mine());
}

nn::Hidden SplitTokenModel::embed(std::span<const int32_t> ids, const nn::TokenView&) const {
  const Range mine = runs_->range();
  require(static_cast<int64_t>(ids.size()) == runs_->tokens(), ErrorCode::usage,
          "{} token ids for {} positions", ids.size(), runs_->tokens());
  return model_.embed(
      ids.subspan(static_cast<size_t>(mine.begin), static_cast<size_t>(mine.size())),
      runs_->mine());
}

void SplitTokenModel::block(int index, const nn::StepContext& step, const nn::Placement& placement,
                            nn::Hidden& hidden, const nn::Seams& seams) const {
  model_.block(index, step, placement, hidden, seams);
  runs_->group().advance();
}

Tensor SplitTokenModel::logits(const nn::Hidden& hidden, const nn::TokenView& view,
                               const nn::Segments& of) const {
  const Range run = runs_->range();
  std::vector<Tensor> parts;
  for (const Range& place : places_of(view.body, of)) {
    const Range held{std::max(place.begin, run.begin), std::min(place.end, run.end)};
    if (held.size() > 0)
      parts.push_back(hidden.tokens.body.slice(0, held.begin - run.begin, held.end - run.begin));
  }
  const Tensor mine = parts.empty() ? hidden.tokens.body.slice(0, 0, 0) : ops::concat_rows(parts);
  const Tensor all = gathered(runs_->group(), mine.contiguous(), {"decide", -1});
  nn::TokenView asked{view.patch, view.rows, {}, of, {}};
  for (const nn::Segment& s : of) asked.lengths.push_back(s.ids.end);
  return model_.logits({.tokens = {.prefix = {}, .body = all}, .skips = {}}, asked, of);
}

}  // namespace tessera::parallel
