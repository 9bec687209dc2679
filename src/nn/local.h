#pragma once

#include "nn/seams.h"
#include "ops/attention.h"

namespace tessera::nn {

/// What queries of the tokens of `asking` see in keys and values of the tokens of `seen`, parts of
/// the same sequences or all of them, each in one piece; of joint sites with their text, as
/// Attention::attend has it.
Tensor attention_between(const AttentionSite& site, const TokenView& asking, const Tensor& q,
                         const TokenView& seen, const Tensor& k, const Tensor& v,
                         const ops::AttentionOptions& options = {});

/// Attention where all tokens of all sequences are on this rank.
class LocalAttention : public Attention {
 public:
  explicit LocalAttention(const Geometry& geometry) : geometry_(geometry) {}
  Tensor attend(int site, const TokenView& view, const Qkv& heads) override;

 private:
  const Geometry& geometry_;
};

}  // namespace tessera::nn
