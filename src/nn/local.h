#pragma once

#include "nn/seams.h"

namespace tessera::nn {

/// Attention where all tokens of all rows are on this rank.
class LocalAttention : public Attention {
 public:
  explicit LocalAttention(const Geometry& geometry) : geometry_(geometry) {}
  Joint attend(int site, const TokenView& view, const Heads& prefix, const Heads& body) override;

 private:
  const Geometry& geometry_;
};

}  // namespace tessera::nn
