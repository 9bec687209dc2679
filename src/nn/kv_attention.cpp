#include "nn/kv_attention.h"

#include <algorithm>

#include "base/fail.h"

namespace tessera::nn {
namespace {

// Neighbours with equal keys form a span, so keys are packed once.
void add(std::vector<ops::AttentionSpan>& spans, const ops::AttentionSpan& next) {
  if (!spans.empty() && spans.back().q_end == next.q_begin &&
      spans.back().k_begin == next.k_begin && spans.back().k_end == next.k_end)
    spans.back().q_end = next.q_end;
  else
    spans.push_back(next);
}

}  // namespace

void KvAttention::keep(int site, const TokenView& view, const Qkv& heads) {
  write(site, tokens_of(view, site_of(site).joint), heads.k, heads.v, step_.index);
}

void KvAttention::count_ages(int site, const TokenView& view) {
  for (const int sequence : view.sequences) {
    const std::span<const int> steps = slots_.written(site, sequence);
    for (auto run = steps.begin(); run != steps.end();) {
      const auto end = std::find_if(run, steps.end(), [&](int step) { return step != *run; });
      const auto age = static_cast<size_t>(step_.index - *run);
      if (age >= ages_.size()) ages_.resize(age + 1);
      ages_[age] += end - run;
      run = end;
    }
  }
}

Tensor KvAttention::attend(int index, const TokenView& view, const Qkv& heads) {
  const AttentionSite& site = site_of(index);
  require(view.lengths.empty() || (!site.joint && view.lengths.size() == view.body.size()),
          ErrorCode::usage, "KvAttention: site {} with {} lengths for {} segments", index,
          view.lengths.size(), view.body.size());
  keep(index, view, heads);
  const Tensor out = seen(index, view, heads.q);
  if (view.lengths.empty()) count_ages(index, view);
  return out;
}

Tensor KvAttention::seen(int index, const TokenView& view, const Tensor& q,
                         const ops::AttentionOptions& options) const {
  const AttentionSite& site = site_of(index);
  const Segments queries = tokens_of(view, site.prefix_queries);
  const int64_t block = site.causal_block;
  std::vector<ops::AttentionSpan> spans;
  int64_t at = 0;
  for (size_t i = 0; i < queries.size(); ++i) {
    const Segment& s = queries[i];
    if (s.ids.size() == 0) continue;
    Range keys = slots_.ids(index, s.sequence);
    if (!view.lengths.empty()) keys.end = std::max(view.lengths[i], s.ids.end);
    const bool canvas = !view.canvas.empty(), causal = block > 0 && !canvas;
    const auto end_for = [&](int64_t id) {
      return causal ? std::min((id / block + 1) * block, keys.end) : keys.end;
    };
    const auto begin_for = [&, first = keys.begin](int64_t id) {
      return site.window ? std::max(first, (canvas ? view.canvas.at(i) : id) - site.window + 1)
                         : first;
    };
    keys = {begin_for(s.ids.begin), end_for(s.ids.end - 1)};
    const int64_t first = slots_.places(index, s.sequence, keys).begin;
    for (int64_t id = s.ids.begin; id < s.ids.end;) {  // queries of a block have the same keys
      const int64_t stop = causal ? std::min(end_for(id), s.ids.end) : s.ids.end;
      add(spans, {at, at + stop - id, first + begin_for(id) - keys.begin,
                  first + end_for(id) - keys.begin});
      at += stop - id;
      id = stop;
    }
  }
  const auto [q_heads, kv_heads] = slots_.heads(index);
  const auto [k, v] = slots_.table(index);
  ops::AttentionOptions own = options;
  own.scale = site.scale;
  own.int8_scores = int8_scores_;
  return ops::attention(q, k, v, q_heads, kv_heads, spans, own);
}

Segments tokens_of(const TokenView& view, bool text) {
  Segments all = text ? view.prefix : Segments{};
  all.insert(all.end(), view.body.begin(), view.body.end());
  return all;
}

std::vector<Range> sequences_of_lengths(const std::vector<int64_t>& lengths) {
  std::vector<Range> sequences;
  for (const int64_t length : lengths) sequences.push_back({0, length});
  return sequences;
}

}  // namespace tessera::nn
