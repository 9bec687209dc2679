#include "parallel/sequence/split_tokens.h"

#include <algorithm>

#include "base/fail.h"
#include "comm/collectives.h"
#include "ops/elementwise.h"

namespace tessera::parallel {
namespace {

using nn::Range;
using nn::Tensor;

// The part of a view whose places in the packed order are in `run`.
nn::TokenView part_of(const nn::TokenView& whole, Range run) {
  nn::TokenView part{whole.patch, whole.rows, {}, {}, {}};
  int64_t at = 0;
  for (size_t i = 0; i < whole.body.size(); ++i) {
    const nn::Segment& s = whole.body[i];
    const Range held{std::max(run.begin, at), std::min(run.end, at + s.ids.size())};
    if (held.size() > 0) {
      const int64_t shift = s.ids.begin - at;
      part.body.push_back({s.row, {held.begin + shift, held.end + shift}});
      part.lengths.push_back(std::max(whole.lengths.at(i), s.ids.end));
    }
    at += s.ids.size();
  }
  return part;
}

// Places in a view's packed order of the tokens of `of`, which are parts of its segments in order.
std::vector<Range> places_of(const nn::Segments& body, const nn::Segments& of) {
  std::vector<Range> places;
  int64_t at = 0;
  size_t next = 0;
  for (const nn::Segment& s : body) {
    for (; next < of.size() && of[next].row == s.row && of[next].ids.begin >= s.ids.begin &&
           of[next].ids.end <= s.ids.end;
         ++next)
      places.push_back(
          {at + of[next].ids.begin - s.ids.begin, at + of[next].ids.end - s.ids.begin});
    at += s.ids.size();
  }
  require(next == of.size(), ErrorCode::usage,
          "logits were asked for that the pass does not hold: {} of {} segments found", next,
          of.size());
  return places;
}

// Rows of all ranks, in the order of ranks.
Tensor gathered(comm::Communicator& group, const Tensor& mine, const comm::Tag& tag) {
  return ops::concat_rows(comm::all_gather(group, mine, tag).wait());
}

}  // namespace

void TokenRuns::cut(const nn::TokenView& whole) {
  require(whole.lengths.size() == whole.body.size(), ErrorCode::usage,
          "a pass with {} lengths for {} segments; split passes are those of token models",
          whole.lengths.size(), whole.body.size());
  whole_ = whole;
  mine_ = part_of(whole, range());
  peers_.hold(whole.body, range().begin);
  mine_.peers = &peers_;
}

Range TokenRuns::range(int rank) const { return nn::split({0, tokens()}, group_.size(), rank); }

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

void SplitKvAttention::keep(int site, const nn::TokenView&, const nn::Heads& body) {
  // One message: my keys, then my values.
  const Tensor mine = ops::concat_rows({body.k, body.v});
  const auto parts = comm::all_gather(runs_->group(), mine, {"keys", site}).wait();
  std::vector<Tensor> k, v;
  for (size_t r = 0; r < parts.size(); ++r) {
    const int64_t count = runs_->range(static_cast<int>(r)).size();
    require(parts[r].size(0) == 2 * count, ErrorCode::rank,
            "layer {}: rank {} sent {} keys and values for {} tokens", site, r, parts[r].size(0),
            count);
    k.push_back(parts[r].slice(0, 0, count));
    v.push_back(parts[r].slice(0, count, 2 * count));
  }
  write(site, runs_->whole().body, ops::concat_rows(k), ops::concat_rows(v));
}

}  // namespace tessera::parallel
