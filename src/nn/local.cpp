#include "nn/local.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/fail.h"
#include "nn/positions.h"
#include "ops/attention.h"

namespace tessera::nn {
namespace {

Range tokens_of(const Segments& segments, int sequence) {
  int64_t at = 0;
  for (const Segment& s : segments) {
    if (s.sequence == sequence) return {at, at + s.ids.size()};
    at += s.ids.size();
  }
  return {0, 0};
}

void check_whole_rows(const Segments& segments) {
  std::set<int> sequences;
  for (const Segment& s : segments)
    require(sequences.insert(s.sequence).second, ErrorCode::usage,
            "sequence {} stands in two segments; attention on one rank takes whole sequences",
            s.sequence);
}

std::vector<ops::AttentionSpan> causal_spans(const Segments& body, int block) {
  std::vector<ops::AttentionSpan> spans;
  int64_t at = 0;
  for (const Segment& s : body) {
    const int64_t end = at + s.ids.size();
    for (int64_t q = at; q < end; q += block) {
      const int64_t stop = std::min(q + block, end);
      spans.push_back({q, stop, at, stop});
    }
    at = end;
  }
  return spans;
}

// Neighbours with equal keys form a span, so keys are packed once.
void add(std::vector<ops::AttentionSpan>& spans, Range queries, Range keys) {
  if (queries.size() == 0) return;
  if (!spans.empty() && spans.back().q_end == queries.begin && spans.back().k_begin == keys.begin &&
      spans.back().k_end == keys.end)
    spans.back().q_end = queries.end;
  else
    spans.push_back({queries.begin, queries.end, keys.begin, keys.end});
}

}  // namespace

Tensor attention_between(const AttentionSite& site, const TokenView& query_view, const Tensor& q,
                         const TokenView& key_view, const Tensor& k, const Tensor& v,
                         const ops::AttentionOptions& options) {
  for (const TokenView* view : {&query_view, &key_view}) {
    check_whole_rows(view->body);
    if (site.joint) check_whole_rows(view->prefix);
  }
  const int64_t text = site.joint ? token_count(key_view.prefix) : 0;
  const int64_t first = site.prefix_queries ? token_count(query_view.prefix) : 0;
  std::vector<Range> order;  // joins text and body of a sequence
  std::vector<ops::AttentionSpan> spans;
  int64_t at = 0;
  for (const int sequence : query_view.sequences) {
    const Range p = site.joint ? tokens_of(key_view.prefix, sequence) : Range{};
    const Range b = tokens_of(key_view.body, sequence);
    order.push_back(p);
    order.push_back({text + b.begin, text + b.end});
    const Range keys{at, at + p.size() + b.size()};
    at = keys.end;
    if (first > 0) add(spans, tokens_of(query_view.prefix, sequence), keys);
    const Range queries = tokens_of(query_view.body, sequence);
    add(spans, {first + queries.begin, first + queries.end}, keys);
  }
  return ops::attention(q, take_ranges(k, order), take_ranges(v, order), site.heads, site.kv_heads,
                        spans, options);
}

Tensor LocalAttention::attend(int index, const TokenView& view, const Qkv& heads) {
  const AttentionSite& site = geometry_.attention.at(static_cast<size_t>(index));
  if (site.causal_block == 0)
    return attention_between(site, view, heads.q, view, heads.k, heads.v,
                             {.int8_scores = int8_scores_});
  check_whole_rows(view.body);
  return ops::attention(heads.q, heads.k, heads.v, site.heads, site.kv_heads,
                        causal_spans(view.body, site.causal_block));
}

}  // namespace tessera::nn
