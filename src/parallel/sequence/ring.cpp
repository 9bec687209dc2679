#include "parallel/sequence/ring.h"

#include <algorithm>
#include <cmath>
#include <limits>

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
  std::vector<Tensor> here;
  for (const Tensor& sum : sums) here.push_back(sum.to(tensor::Device::cpu));
  Tensor shares = Tensor::empty({rows, parts}, DType::f32);
  tensor::parallel_for(rows, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float top = -std::numeric_limits<float>::infinity(), all = 0;
      for (const Tensor& sum : here) top = std::max(top, sum.data<float>()[i]);
      float* const share = shares.row<float>(i);
      for (int64_t p = 0; p < parts; ++p) {
        const float sum = here[static_cast<size_t>(p)].data<float>()[i];
        share[p] = std::isfinite(top) ? std::exp(sum - top) : 0;
        all += share[p];
      }
      for (int64_t p = 0; p < parts; ++p) share[p] = all > 0 ? share[p] / all : 0;
    }
  });
  return shares.to(sums.front().device());
}

}  // namespace

Tensor Ring::attend(int index, const nn::TokenView& view, const nn::Qkv& heads) {
  const nn::AttentionSite& site = geometry_.attention.at(static_cast<size_t>(index));
  const comm::Tag tag{"ring", site.block};
  const int ranks = group_.size(), rank = group_.rank();
  const int64_t rows = heads.q.size(0) * site.heads, dim = site.head_dim;
  const Tensor seen = Tensor::empty({rows, ranks * dim}, DType::f32, heads.q.device());
  std::vector<Tensor> sums(holders_.size());
  Tensor here = ops::concat_rows({heads.k, heads.v});
  for (int hop = 0; hop < ranks; ++hop) {
    const int owner = (rank + ranks - hop) % ranks;
    comm::Pending next;
    if (hop + 1 < ranks) {  // they travel while I attend to them
      next = group_.receive((rank + ranks - 1) % ranks, tag);
      group_.send((rank + 1) % ranks, here, tag);
    }
    const auto at = static_cast<size_t>(owner);
    const nn::TokenView theirs = partition_.beside(view, holders_[at]);
    const int64_t keys =
        nn::token_count(theirs.body) + (site.joint ? nn::token_count(theirs.prefix) : 0);
    require(here.rank() == 2 && here.size(0) == 2 * keys, ErrorCode::rank,
            "layer {}: rank {} of a ring has keys and values {} for {} tokens", site.block, owner,
            here.shape().str(), keys);
    const Tensor part =
        nn::attention_between(site, view, heads.q, theirs, here.slice(0, 0, keys),
                              here.slice(0, keys, 2 * keys), {.lse = &sums[at], .wide = true});
    tensor::copy_into(seen.slice(1, owner * dim, (owner + 1) * dim), part.reshape({rows, dim}));
    if (hop + 1 < ranks) here = next.wait();
  }
  const Tensor all = ops::combine_rows(seen.reshape({rows * ranks, dim}), shares(sums));
  return ops::cast(all.reshape(heads.q.shape()), heads.q.dtype());
}

}  // namespace tessera::parallel
