#pragma once

#include "nn/seams.h"

namespace tessera::nn {

/// Attention where all tokens of all sequences are on this rank.
class LocalAttention : public Attention {
 public:
  explicit LocalAttention(const Geometry& geometry) : geometry_(geometry) {}
  Tensor attend(int site, const TokenView& view, const Qkv& heads) override;

 private:
  const Geometry& geometry_;
};

}  // namespace tessera::nn
