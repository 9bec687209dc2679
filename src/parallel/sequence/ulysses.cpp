#include "parallel/sequence/ulysses.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/fail.h"
#include "comm/collectives.h"
#include "nn/positions.h"
#include "ops/elementwise.h"

namespace tessera::parallel {
namespace {

using nn::AttentionSite;
using nn::Range;
using nn::TokenView;
using tensor::Tensor;

/// Consecutive tokens of a rank, and their first row.
struct Run {
  bool body;
  nn::Segment tokens;
  size_t holder;
  int64_t first;

  int64_t size() const { return tokens.ids.size(); }
};

// The tokens of all ranks in the order of a single rank.
std::vector<Run> in_order(const std::vector<TokenView>& views, bool text) {
  std::vector<Run> runs;
  for (size_t r = 0; r < views.size(); ++r) {
    int64_t first = 0;
    const auto add = [&](bool body, const nn::Segments& segments) {
      for (const nn::Segment& s : segments)
        runs.push_back({body, s, r, std::exchange(first, first + s.ids.size())});
    };
    if (text) add(false, views[r].prefix);
    add(true, views[r].body);
  }
  const auto place = [](const Run& run) {
    return std::tuple(run.body, run.tokens.sequence, run.tokens.ids.begin);
  };
  std::sort(runs.begin(), runs.end(),
            [&](const Run& a, const Run& b) { return place(a) < place(b); });
  return runs;
}

Tensor joined(const std::vector<Tensor>& rows, const std::vector<Run>& runs) {
  std::vector<Tensor> parts;
  for (const Run& run : runs)
    parts.push_back(rows[run.holder].slice(0, run.first, run.first + run.size()));
  if (parts.size() < 2) return parts.empty() ? rows.front() : parts.front();
  return ops::concat_rows(parts);
}

// The key heads of a rank among `ranks`; query heads go with them.
Range key_heads(const AttentionSite& site, int ranks, size_t rank) {
  return nn::split({0, site.kv_heads}, ranks, static_cast<int>(rank));
}

nn::Geometry part_of(nn::Geometry geometry, int ranks, int rank) {
  for (AttentionSite& site : geometry.attention) {
    const auto keys = static_cast<int>(key_heads(site, ranks, static_cast<size_t>(rank)).size());
    require(keys > 0, ErrorCode::plan, "{} ranks for {} heads of keys; use at most as many", ranks,
            site.kv_heads);
    site.heads = site.heads / site.kv_heads * keys;
    site.kv_heads = keys;
  }
  return geometry;
}

// Queries, keys and values of some heads of a rank's tokens, in sequence.
Tensor packed(const AttentionSite& site, const nn::Qkv& qkv, Range heads) {
  const int64_t query_width = site.heads / site.kv_heads * site.head_dim, dim = site.head_dim;
  const Tensor parts[] = {qkv.q.slice(1, heads.begin * query_width, heads.end * query_width),
                          qkv.k.slice(1, heads.begin * dim, heads.end * dim),
                          qkv.v.slice(1, heads.begin * dim, heads.end * dim)};
  int64_t at = 0;
  for (const Tensor& part : parts) at += part.elements();
  Tensor message = Tensor::empty({at}, qkv.q.dtype(), qkv.q.device(), tensor::MemoryClass::buffers);
  at = 0;
  for (const Tensor& part : parts) {
    const int64_t end = at + part.elements();
    tensor::copy_into(message.slice(0, at, end).reshape(part.shape()), part);
    at = end;
  }
  return message;
}

}  // namespace

Ulysses::Ulysses(const nn::Geometry& geometry, comm::Communicator& group, std::vector<int> ranks,
                 const Partition& partition, const InnerAttentionFactory& factory)
    : geometry_(geometry),
      group_(group),
      ranks_(std::move(ranks)),
      partition_(partition),
      own_geometry_(part_of(geometry, group.size(), group.rank())),
      inner_(factory(own_geometry_)) {}

nn::Qkv Ulysses::gathered(const AttentionSite& site, const std::vector<TokenView>& views,
                          const nn::Qkv& heads) {
  std::vector<Tensor> messages;
  for (size_t r = 0; r < views.size(); ++r)
    messages.push_back(packed(site, heads, key_heads(site, group_.size(), r)));
  const std::vector<Tensor> inputs =
      comm::all_to_all(group_, std::move(messages), {"to heads", site.block}).wait();
  const int64_t keys = key_heads(site, group_.size(), static_cast<size_t>(group_.rank())).size() *
                       site.head_dim,
                queries = site.heads / site.kv_heads * keys;
  std::vector<Tensor> parts[3];
  for (size_t r = 0; r < views.size(); ++r) {
    const int64_t text = site.joint ? nn::token_count(views[r].prefix) : 0;
    const int64_t tokens = text + nn::token_count(views[r].body);
    const int64_t asking = site.prefix_queries ? tokens : tokens - text;
    require(inputs[r].elements() == asking * queries + 2 * tokens * keys, ErrorCode::rank,
            "layer {}: rank {} sent {} elements for {} queries and {} keys", site.block, r,
            inputs[r].elements(), asking, tokens);
    int64_t at = 0;
    for (const auto& [part, rows, width] :
         {std::tuple(0, asking, queries), {1, tokens, keys}, {2, tokens, keys}}) {
      const int64_t end = at + rows * width;
      parts[part].push_back(inputs[r].slice(0, at, end).reshape({rows, width}));
      at = end;
    }
  }
  const std::vector<Run> runs = in_order(views, site.joint);
  return {joined(parts[0], in_order(views, site.joint && site.prefix_queries)),
          joined(parts[1], runs), joined(parts[2], runs)};
}

Tensor Ulysses::returned(const AttentionSite& site, const std::vector<TokenView>& views,
                         const Tensor& output) {
  std::vector<std::vector<Range>> places(views.size());
  int64_t at = 0;
  for (const Run& run : in_order(views, site.joint && site.prefix_queries)) {
    places[run.holder].push_back({at, at + run.size()});
    at += run.size();
  }
  std::vector<Tensor> messages;
  for (const auto& of_rank : places)
    messages.push_back(nn::take_ranges(output, of_rank).contiguous());
  return ops::concat_columns(
      comm::all_to_all(group_, std::move(messages), {"to tokens", site.block}).wait());
}

Tensor Ulysses::attend(int index, const TokenView& view, const nn::Qkv& heads) {
  const AttentionSite& site = geometry_.attention.at(static_cast<size_t>(index));
  std::vector<TokenView> views;
  for (const int rank : ranks_) views.push_back(partition_.beside(view, {rank}));
  const nn::Qkv qkv = gathered(site, views, heads);
  return returned(site, views, inner_->attend(index, partition_.beside(view, ranks_), qkv));
}

}  // namespace tessera::parallel
