#pragma once

#include "nn/seams.h"
#include "ops/attention.h"

namespace tessera::nn {

/// Attention of queries of `query_view` over keys and values of `key_view`, parts of the same
/// sequences or all of them, each contiguous; joint sites include text, as in
/// Attention::attend.
Tensor attention_between(const AttentionSite& site, const TokenView& query_view, const Tensor& q,
                         const TokenView& key_view, const Tensor& k, const Tensor& v,
                         const ops::AttentionOptions& options = {});

/// Attention with all tokens of all sequences on this rank. `int8_scores`: as in ops/attention.h.
class LocalAttention : public Attention {
 public:
  explicit LocalAttention(const Geometry& geometry, bool int8_scores = false)
      : geometry_(geometry), int8_scores_(int8_scores) {}
  Tensor attend(int site, const TokenView& view, const Qkv& heads) override;

 private:
  const Geometry& geometry_;
  bool int8_scores_;
};

}  // namespace tessera::nn
