#pragma once

#include <vector>

#include "ops/matmul.h"
#include "ops/routing.h"

namespace tessera::ops {

/// An expert: down(act(up x + up_bias)) + down_bias. Null weights: held by another rank.
struct Expert {
  Weight up;    ///< [inner, hidden]; for swiglu and geglu: gate and up, packed in pairs
  Weight down;  ///< [hidden, inner]
  Activation activation = Activation::swiglu;  ///< equal for all experts of a layer
  Tensor up_bias{},
      down_bias{};  ///< f32 [inner], [hidden]; undefined: none. Paired weights have no up_bias
};

/// Sums over slots, in slot order, in f32: weight * round(Expert(x)), rounding to the dtype of x;
/// then + shared [tokens, hidden] if defined; the result has the dtype of x. Experts without tokens
/// are not read. Work is grouped by expert: gather -> up -> down -> weighted combine.
Tensor experts(const Tensor& x, const Routing& routing, const std::vector<Expert>& bank,
               const Tensor& shared = {});

/// Expert outputs before combination: [tokens * k, hidden] in the dtype of x, row t * k + j for
/// slot j of token t (rows of id -1 are zero). For strategies that move or keep rows.
Tensor expert_rows(const Tensor& x, const Routing& routing, const std::vector<Expert>& bank);
/// The combination step of experts().
Tensor combine_rows(const Tensor& rows, const Tensor& weights, const Tensor& shared = {});

/// Counts expert_rows() and combine_rows() in the scope's meter, for callers that compute in tiles:
/// `rows` rows from x, with weights of `experts_used` experts read.
void count_expert_rows(const std::vector<Expert>& bank, const Tensor& x, int64_t rows,
                       double experts_used);
void count_combine(const Tensor& rows, const Tensor& y, bool shared);

}  // namespace tessera::ops
