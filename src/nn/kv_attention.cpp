#include "nn/kv_attention.h"

#include <algorithm>

#include "base/fail.h"
#include "ops/attention.h"
#include "ops/elementwise.h"

namespace tessera::nn {
namespace {

// Queries of a segment by what they see; keys are counted from the start of the row.
std::vector<ops::AttentionSpan> spans_of(const Segment& s, int64_t length, int causal_block) {
  if (!causal_block) return {{0, s.ids.size(), 0, length}};
  std::vector<ops::AttentionSpan> spans;
  for (int64_t id = s.ids.begin; id < s.ids.end;) {
    const int64_t block_end = (id / causal_block + 1) * causal_block;
    const int64_t stop = std::min(block_end, s.ids.end);
    spans.push_back({id - s.ids.begin, stop - s.ids.begin, 0, std::min(block_end, length)});
    id = stop;
  }
  return spans;
}

}  // namespace

void KvAttention::keep(int site, const TokenView& view, const Heads& body) {
  write(site, view.body, body.k, body.v);
}

Tensor KvAttention::attend(int site_index, const TokenView& view, const Heads& body) {
  const AttentionSite& site = geometry_.attention.at(static_cast<size_t>(site_index));
  require(!site.joint && view.lengths.size() == view.body.size(), ErrorCode::usage,
          "KvAttention: site {} with {} lengths for {} segments; it serves token models only",
          site_index, view.lengths.size(), view.body.size());
  keep(site_index, view, body);
  std::vector<Tensor> out;
  int64_t at = 0;
  for (size_t i = 0; i < view.body.size(); ++i) {
    const Segment& s = view.body[i];
    const int64_t length = std::max(view.lengths[i], s.ids.end);
    const auto spans = spans_of(s, length, site.causal_block);
    int64_t seen = 0;
    for (const auto& span : spans) seen = std::max(seen, span.k_end);
    const auto [k, v] = slots_.read(site_index, s.row, {0, seen});
    const Tensor q = body.q.slice(0, at, at + s.ids.size());
    at += s.ids.size();
    if (s.ids.size() > 0) out.push_back(ops::attention(q, k, v, site.heads, site.kv_heads, spans));
  }
  if (out.empty()) return Tensor::empty(body.q.shape(), body.q.dtype(), body.q.device());
  return out.size() == 1 ? out[0] : ops::concat_rows(out);
}

}  // namespace tessera::nn
