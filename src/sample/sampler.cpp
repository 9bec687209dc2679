#include "sample/sampler.h"

#include <cmath>

#include "base/fail.h"

namespace tessera::sample {
namespace {

// Of the first columns of some rows; sums in f64.
double deviation(const Tensor& x, int64_t begin, int64_t end, int64_t columns) {
  const double count = double(end - begin) * double(columns);
  double sum = 0, squares = 0;
  for (int64_t t = begin; t < end; ++t)
    for (int64_t i = 0; i < columns; ++i) sum += x.row<float>(t)[i];
  const double mean = sum / count;
  for (int64_t t = begin; t < end; ++t)
    for (int64_t i = 0; i < columns; ++i) {
      const double away = x.row<float>(t)[i] - mean;
      squares += away * away;
    }
  return std::sqrt(squares / count);
}

}  // namespace

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

Tensor rescale_guided(const Tensor& guided, const Tensor& cond, float phi, int64_t tokens,
                      int64_t columns) {
  require(guided.shape() == cond.shape() && tokens > 0 && guided.size(0) % tokens == 0 &&
              columns >= 0 && columns <= guided.size(1),
          ErrorCode::usage,
          "rescaled guidance needs whole pictures of {} tokens twice, got {} and {}", tokens,
          guided.shape().str(), cond.shape().str());
  Tensor out = Tensor::empty(guided.shape(), tensor::DType::f32, guided.device());
  if (guided.is_meta()) return out;
  for (int64_t begin = 0; begin < guided.size(0); begin += tokens) {
    const double spread = deviation(guided, begin, begin + tokens, columns);
    const double ratio =
        spread > 0 ? deviation(cond, begin, begin + tokens, columns) / spread : 1.0;
    const auto factor = static_cast<float>(phi * ratio + 1.0 - phi);
    for (int64_t t = begin; t < begin + tokens; ++t)
      for (int64_t i = 0; i < guided.size(1); ++i)
        out.row<float>(t)[i] = guided.row<float>(t)[i] * (i < columns ? factor : 1.0f);
  }
  return out;
}

}  // namespace tessera::sample
