#include "nn/local_spatial.h"

#include <vector>

#include "ops/attention.h"

namespace tessera::nn {

Plane LocalSpatial::conv(const ops::ConvWeight& weight, const Plane& x,
                         const ops::Conv2dOptions& options) {
  const tensor::Tensor y = ops::conv2d(x.data, weight, options);
  return {y, y.size(1), 0};
}

tensor::Tensor LocalSpatial::moments(const Plane& x) { return ops::channel_moments(x.data); }

tensor::Tensor LocalSpatial::attend(const Plane& x, const tensor::Tensor& q,
                                    const tensor::Tensor& k, const tensor::Tensor& v) {
  const int64_t pixels = x.data.size(1) * x.data.size(2);
  std::vector<ops::AttentionSpan> spans;
  for (int64_t r = 0; r < x.data.size(0); ++r)
    spans.push_back({r * pixels, (r + 1) * pixels, r * pixels, (r + 1) * pixels});
  return ops::attention(q, k, v, 1, 1, spans);
}

}  // namespace tessera::nn
