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
  std::set<int> seen;
  for (const Segment& s : segments)
    require(seen.insert(s.sequence).second, ErrorCode::usage,
            "sequence {} stands in two segments; attention on one rank takes whole sequences",
            s.sequence);
}

std::vector<ops::AttentionSpan> body_spans(const Segments& body, int causal_block) {
  std::vector<ops::AttentionSpan> spans;
  int64_t at = 0;
  for (const Segment& s : body) {
    const int64_t end = at + s.ids.size(), block = causal_block ? causal_block : s.ids.size();
    for (int64_t q = at; q < end; q += block) {
      const int64_t stop = std::min(q + block, end);
      spans.push_back({q, stop, at, causal_block ? stop : end});
    }
    at = end;
  }
  return spans;
}

}  // namespace

Tensor LocalAttention::attend(int site_index, const TokenView& view, const Qkv& heads) {
  const AttentionSite& site = geometry_.attention.at(static_cast<size_t>(site_index));
  check_whole_rows(view.body);
  if (!site.joint)
    return ops::attention(heads.q, heads.k, heads.v, site.heads, site.kv_heads,
                          body_spans(view.body, site.causal_block));
  check_whole_rows(view.prefix);
  const int64_t text = token_count(view.prefix), asking = site.prefix_queries ? text : 0;
  std::vector<Range> order;  // text and body of a sequence become neighbours
  std::vector<ops::AttentionSpan> spans;
  int64_t at = 0;
  for (const Segment& s : view.body) {
    const Range p = tokens_of(view.prefix, s.sequence), b = tokens_of(view.body, s.sequence);
    order.push_back(p);
    order.push_back({text + b.begin, text + b.end});
    const int64_t begin = std::exchange(at, at + p.size() + b.size());
    if (asking > 0) spans.push_back({p.begin, p.end, begin, at});
    spans.push_back({asking + b.begin, asking + b.end, begin, at});
  }
  if (view.body.size() == 1 && asking > 0) spans = {{0, heads.q.size(0), 0, at}};
  return ops::attention(heads.q, take_ranges(heads.k, order), take_ranges(heads.v, order),
                        site.heads, site.kv_heads, spans);
}

}  // namespace tessera::nn
