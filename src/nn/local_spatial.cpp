#include "nn/local_spatial.h"

#include <vector>

#include "ops/attention.h"

namespace tessera::nn {

Plane LocalSpatial::convolve(std::span<const ops::ConvWeight> taps, const Plane& x,
                             const ops::Conv2dOptions& options) {
  ops::Conv2dOptions sum = options;
  const int64_t frames = x.data.size(0) - std::ssize(taps) + 1;
  for (int64_t k = 0; k < std::ssize(taps); ++k) {
    sum.residual = ops::conv2d(x.data.slice(0, k, k + frames), taps[static_cast<size_t>(k)], sum);
    sum.into_residual = true;
  }
  return {sum.residual, sum.residual.size(1), 0};
}

tensor::Tensor LocalSpatial::moments(const Plane& x, bool together) {
  const tensor::Shape tall{1, x.data.size(0) * x.data.size(1), x.data.size(2), x.data.size(3)};
  return ops::channel_moments(together ? x.data.reshape(tall) : x.data);
}

tensor::Tensor LocalSpatial::attend(const Plane& x, const tensor::Tensor& q,
                                    const tensor::Tensor& k, const tensor::Tensor& v) {
  const int64_t pixels = x.data.size(1) * x.data.size(2);
  std::vector<ops::AttentionSpan> spans;
  for (int64_t r = 0; r < x.data.size(0); ++r)
    spans.push_back({r * pixels, (r + 1) * pixels, r * pixels, (r + 1) * pixels});
  return ops::attention(q, k, v, 1, 1, spans);
}

}  // namespace tessera::nn
