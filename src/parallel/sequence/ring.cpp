#include "parallel/sequence/ring.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "base/fail.h"
#include "nn/local.h"
#include "ops/elementwise.h"
#include "ops/experts.h"
#include "tensor/scope.h"

namespace tessera::parallel {
namespace {

using tensor::DType;
using tensor::Tensor;

// The share of each part of the keys in the softmax over all of them, [rows, parts], of
// log-sum-exps by part.
Tensor shares(const std::vector<Tensor>& sums) {
  const auto parts = std::ssize(sums);
  const int64_t rows = sums.front().elements();
  if (sums.front().is_meta()) return Tensor::empty({rows, parts}, DType::f32, tensor::Device::meta);
  std::vector<Tensor> host_sums;
  for (const Tensor& sum : sums) host_sums.push_back(sum.to(tensor::Device::cpu));
  Tensor shares = Tensor::empty({rows, parts}, DType::f32);
  tensor::parallel_for(rows, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float top = -std::numeric_limits<float>::infinity(), total = 0;
      for (const Tensor& sum : host_sums) top = std::max(top, sum.data<float>()[i]);
      float* const share = shares.row<float>(i);
      for (int64_t p = 0; p < parts; ++p) {
        const float sum = host_sums[static_cast<size_t>(p)].data<float>()[i];
        share[p] = std::isfinite(top) ? std::exp(sum - top) : 0;
        total += share[p];
      }
      for (int64_t p = 0; p < parts; ++p) share[p] = total > 0 ? share[p] / total : 0;
    }
  });
  return shares.to(sums.front().device());
}

/// Attention of queries to each part of the keys, f32, until all parts are there.
class Parts {
 public:
  Parts(const nn::AttentionSite& site, const Tensor& q, int count)
      : q_(q),
        count_(count),
        rows_(q.size(0) * site.heads),
        dim_(site.head_dim),
        output_(Tensor::empty({rows_, count * dim_}, DType::f32, q.device())),
        sums_(static_cast<size_t>(count)) {}

  /// `sums`: log-sum-exps.
  void put(int part, const Tensor& output, const Tensor& sums) {
    tensor::copy_into(output_.slice(1, part * dim_, (part + 1) * dim_),
                      output.reshape({rows_, dim_}));
    sums_[static_cast<size_t>(part)] = sums;
  }
  /// In the order of parts.
  Tensor merged() const {
    const Tensor combined =
        ops::combine_rows(output_.reshape({rows_ * count_, dim_}), shares(sums_));
    return ops::cast(combined.reshape(q_.shape()), q_.dtype());
  }

 private:
  const Tensor& q_;
  int64_t count_, rows_, dim_;
  Tensor output_;
  std::vector<Tensor> sums_;
};

// Attention results and log-sum-exps, in a message.
Tensor packed(const Tensor& output, const Tensor& sums) {
  const int64_t first = output.elements(), total = first + sums.elements();
  const Tensor message =
      Tensor::empty({total}, DType::f32, output.device(), tensor::MemoryClass::buffers);
  tensor::copy_into(message.slice(0, 0, first).reshape(output.shape()), output);
  tensor::copy_into(message.slice(0, first, total).reshape(sums.shape()), sums);
  return message;
}

// The ids of each sequence for consecutive numbers of the tokens in `view`.
std::vector<nn::Range> numbered(const nn::TokenView& view) {
  std::vector<nn::Range> sequences(view.sequences.size());
  for (const nn::Segment& s : view.prefix)
    sequences.at(static_cast<size_t>(s.sequence)).begin -= s.ids.size();
  for (const nn::Segment& s : view.body)
    sequences.at(static_cast<size_t>(s.sequence)).end += s.ids.size();
  return sequences;
}

// Some of these tokens by their numbers, which restart in every sequence: text below 0.
nn::Segments by_number(const nn::Segments& segments, const nn::Segments& subset, bool text) {
  std::map<int, int64_t> first, count;  // the first place and the tokens of a sequence
  int64_t at = 0;
  for (const nn::Segment& s : segments) {
    first.try_emplace(s.sequence, at);
    count[s.sequence] += s.ids.size();
    at += s.ids.size();
  }
  nn::Segments result = subset;
  const std::vector<nn::Range> places = places_of(segments, subset);
  for (size_t i = 0; i < subset.size(); ++i) {
    const int sequence = subset[i].sequence;
    const int64_t begin = places[i].begin - first[sequence] - (text ? count[sequence] : 0);
    result[i].ids = {begin, begin + places[i].size()};
  }
  return result;
}

}  // namespace

Tensor Ring::attend(int index, const nn::TokenView& view, const nn::Qkv& heads) {
  const nn::AttentionSite& site = geometry_.attention.at(static_cast<size_t>(index));
  const comm::Tag tag{"ring", site.block};
  const int ranks = group_.size(), rank = group_.rank();
  Parts parts(site, heads.q, ranks);
  Tensor keys_values = ops::concat_rows({heads.k, heads.v});
  for (int hop = 0; hop < ranks; ++hop) {
    const int owner = (rank + ranks - hop) % ranks;
    comm::Pending next;
    if (hop + 1 < ranks) {  // travel during attention
      next = group_.receive((rank + ranks - 1) % ranks, tag);
      group_.send((rank + 1) % ranks, keys_values, tag);
    }
    const nn::TokenView peer_view = partition_.beside(view, holders_[static_cast<size_t>(owner)]);
    const int64_t keys =
        nn::token_count(peer_view.body) + (site.joint ? nn::token_count(peer_view.prefix) : 0);
    require(keys_values.rank() == 2 && keys_values.size(0) == 2 * keys, ErrorCode::rank,
            "layer {}: rank {} of a ring has keys and values {} for {} tokens", site.block, owner,
            keys_values.shape().str(), keys);
    Tensor sums;
    const Tensor output = nn::attention_between(
        site, view, heads.q, peer_view, keys_values.slice(0, 0, keys),
        keys_values.slice(0, keys, 2 * keys),
        {.lse = &sums, .wide = true, .int8_scores = partition_.int8_scores()});
    parts.put(owner, output, sums);
    if (hop + 1 < ranks) keys_values = next.wait();
  }
  return parts.merged();
}

QueryRing::QueryRing(const nn::Geometry& geometry, comm::Communicator& group,
                     std::vector<std::vector<int>> holders, const Partition& partition)
    : KvAttention(geometry,
                  numbered(partition.view(holders.at(static_cast<size_t>(group.rank()))))),
      group_(group),
      holders_(std::move(holders)),
      partition_(partition),
      own_view_(partition.view(holders_[static_cast<size_t>(group.rank())])) {}

void QueryRing::keep(int site, const nn::TokenView& view, const nn::Qkv& heads) {
  nn::Segments tokens;
  if (site_of(site).joint) tokens = by_number(own_view_.prefix, view.prefix, true);
  const nn::Segments body = by_number(own_view_.body, view.body, false);
  tokens.insert(tokens.end(), body.begin(), body.end());
  write(site, tokens, heads.k, heads.v, step_.index);
}

// Each rank starts a receive, then sends, in the same order: the queries of the next hop, and the
// answers of this hop. So no two ranks wait for each other.
Tensor QueryRing::attend(int index, const nn::TokenView& view, const nn::Qkv& heads) {
  const nn::AttentionSite& site = site_of(index);
  const comm::Tag query_tag{"ring queries", site.block}, answers{"ring answers", site.block};
  const int ranks = group_.size(), rank = group_.rank();
  const auto beside = [&](int hops) { return (rank + hops) % ranks; };
  const Tensor own_queries = heads.q.contiguous();
  comm::Pending next;
  const auto ask = [&](int hop) {
    next = group_.receive(beside(ranks - hop), query_tag);
    group_.send(beside(hop), own_queries, query_tag);
  };
  ask(1);
  keep(index, view, heads);
  count_ages(index, view);
  Parts parts(site, heads.q, ranks);
  Tensor sums;
  const Tensor own = seen(index, view, own_queries, {.lse = &sums, .wide = true});
  parts.put(rank, own, sums);
  std::vector<comm::Pending> pending_answers(holders_.size());
  for (int hop = 1; hop < ranks; ++hop) {
    const int from = beside(ranks - hop), to = beside(hop);
    const Tensor peer_queries = next.wait();
    if (hop + 1 < ranks) ask(hop + 1);
    const nn::TokenView asking = partition_.beside(view, holders_[static_cast<size_t>(from)]);
    const int64_t queries =
        nn::token_count(asking.body) + (site.prefix_queries ? nn::token_count(asking.prefix) : 0);
    require(peer_queries.rank() == 2 && peer_queries.size(0) == queries &&
                peer_queries.size(1) == own_queries.size(1),
            ErrorCode::rank, "layer {}: rank {} of a ring asks {} for {} tokens", site.block, from,
            peer_queries.shape().str(), queries);
    const Tensor output = seen(index, asking, peer_queries, {.lse = &sums, .wide = true});
    pending_answers[static_cast<size_t>(to)] = group_.receive(to, answers);
    group_.send(from, packed(output, sums), answers);
  }
  const int64_t elements = own_queries.elements(),
                total = elements + own_queries.size(0) * site.heads;
  for (int owner = 0; owner < ranks; ++owner) {
    if (owner == rank) continue;
    const Tensor answer = pending_answers[static_cast<size_t>(owner)].wait();
    require(answer.elements() == total, ErrorCode::rank,
            "layer {}: rank {} of a ring answers {} for queries {}", site.block, owner,
            answer.shape().str(), own_queries.shape().str());
    parts.put(owner, answer.slice(0, 0, elements), answer.slice(0, elements, total));
  }
  return parts.merged();
}

}  // namespace tessera::parallel
