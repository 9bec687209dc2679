#include "sample/sampler.h"

#include "base/fail.h"

namespace tessera::sample {

Tensor guide(const Tensor& cond, const Tensor& uncond, float scale, int64_t columns) {
  require(cond.shape() == uncond.shape() && columns >= 0 && columns <= cond.size(1),
          ErrorCode::usage, "guidance needs two predictions of one shape, got {} and {}",
          cond.shape().str(), uncond.shape().str());
  Tensor out = Tensor::empty(cond.shape(), tensor::DType::f32, cond.device());
  if (cond.is_meta()) return out;
  for (int64_t t = 0; t < cond.size(0); ++t) {
    const float *c = cond.row<float>(t), *u = uncond.row<float>(t);
    float* to = out.row<float>(t);
    for (int64_t i = 0; i < cond.size(1); ++i)
      to[i] = i < columns ? u[i] + scale * (c[i] - u[i]) : c[i];
  }
  return out;
}

}  // namespace tessera::sample
