#include "nn/local.h"

#include <algorithm>
#include <set>

#include "base/fail.h"
#include "ops/attention.h"
#include "ops/elementwise.h"

namespace tessera::nn {
namespace {

// Rows stand in segments; prefix and body of a row become neighbours.
struct Woven {
  Tensor q, k, v;
  std::vector<ops::AttentionSpan> spans;
};

Range tokens_of(const Segments& segments, int row) {
  int64_t at = 0;
  for (const Segment& s : segments) {
    if (s.row == row) return {at, at + s.ids.size()};
    at += s.ids.size();
  }
  return {0, 0};
}

void check_whole_rows(const Segments& segments) {
  std::set<int> seen;
  for (const Segment& s : segments)
    require(seen.insert(s.row).second, ErrorCode::usage,
            "row {} stands in two segments; attention on one rank takes whole rows", s.row);
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

Woven weave(const TokenView& view, const AttentionSite& site, const Heads& prefix,
            const Heads& body) {
  std::vector<Tensor> q, k, v;
  Woven woven;
  int64_t q_at = 0, k_at = 0;
  for (const Segment& s : view.body) {
    const Range b = tokens_of(view.body, s.row), p = tokens_of(view.prefix, s.row);
    int64_t queries = b.size();
    if (site.prefix_queries) {
      q.push_back(prefix.q.slice(0, p.begin, p.end));
      queries += p.size();
    }
    q.push_back(body.q.slice(0, b.begin, b.end));
    for (auto [parts, from, with] :
         {std::tuple{&k, &prefix.k, &body.k}, {&v, &prefix.v, &body.v}}) {
      parts->push_back(from->slice(0, p.begin, p.end));
      parts->push_back(with->slice(0, b.begin, b.end));
    }
    woven.spans.push_back({q_at, q_at + queries, k_at, k_at + p.size() + b.size()});
    q_at += queries;
    k_at += p.size() + b.size();
  }
  woven.q = ops::concat_rows(q);
  woven.k = ops::concat_rows(k);
  woven.v = ops::concat_rows(v);
  return woven;
}

}  // namespace

Joint LocalAttention::attend(int site_index, const TokenView& view, const Heads& prefix,
                             const Heads& body) {
  const AttentionSite& site = geometry_.attention.at(static_cast<size_t>(site_index));
  check_whole_rows(view.body);
  if (!site.joint) {
    const auto spans = body_spans(view.body, site.causal_block);
    return {{}, ops::attention(body.q, body.k, body.v, site.heads, site.kv_heads, spans)};
  }
  check_whole_rows(view.prefix);
  const Woven woven = weave(view, site, prefix, body);
  const Tensor out =
      ops::attention(woven.q, woven.k, woven.v, site.heads, site.kv_heads, woven.spans);
  std::vector<Tensor> text, latent;
  for (size_t i = 0; i < view.body.size(); ++i) {
    const ops::AttentionSpan& span = woven.spans[i];
    const int64_t cut = span.q_end - view.body[i].ids.size();
    text.push_back(out.slice(0, span.q_begin, cut));
    latent.push_back(out.slice(0, cut, span.q_end));
  }
  if (!site.prefix_queries) return {{}, ops::concat_rows(latent)};
  return {ops::concat_rows(text), ops::concat_rows(latent)};
}

}  // namespace tessera::nn
