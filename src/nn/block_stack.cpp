#include "nn/block_stack.h"

#include "base/fail.h"

namespace tessera::nn {

Tensor Denoiser::first_input(const StepContext&, const Placement&, const Hidden&,
                             const Seams&) const {
  fail(ErrorCode::usage, "`cache` teacache: the first block of this model has no modulated input");
}

Hidden TokenModel::embed_canvas(std::span<const int32_t>, const TokenView&,
                                const EarlierLogits&) const {
  fail(ErrorCode::usage, "this language model fills in masks and denoises no canvas");
}

}  // namespace tessera::nn
