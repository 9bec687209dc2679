#include "sample/sampler.h"

#include <cmath>

#include "base/fail.h"

namespace tessera::sample {
namespace {

// The standard deviation of the first columns of some rows; sums in f64.
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

Tensor limit_guided(const Tensor& guided, const Tensor& cond, float limit, int64_t tokens) {
  require(guided.shape() == cond.shape() && tokens > 0 && guided.size(0) % tokens == 0,
          ErrorCode::usage,
          "limited guidance needs whole samples of {} tokens twice, got {} and {}", tokens,
          guided.shape().str(), cond.shape().str());
  if (guided.is_meta()) return Tensor::empty(guided.shape(), tensor::DType::f32, guided.device());
  const Tensor from = guided.to(tensor::Device::cpu), like = cond.to(tensor::Device::cpu);
  const Tensor out = Tensor::empty(guided.shape(), tensor::DType::f32);
  const auto length = [&](const Tensor& x, int64_t begin) {
    double sum = 0;
    for (int64_t t = begin; t < begin + tokens; ++t)
      for (int64_t i = 0; i < x.size(1); ++i)
        sum += double(x.row<float>(t)[i]) * x.row<float>(t)[i];
    return std::sqrt(sum);
  };
  for (int64_t begin = 0; begin < from.size(0); begin += tokens) {
    const double norm = length(from, begin), most = limit * length(like, begin);
    const float factor = norm > most ? static_cast<float>(most / norm) : 1.0f;
    for (int64_t t = begin; t < begin + tokens; ++t)
      for (int64_t i = 0; i < from.size(1); ++i)
        out.row<float>(t)[i] = from.row<float>(t)[i] * factor;
  }
  return out.to(guided.device());
}

Tensor rescale_guided(const Tensor& guided, const Tensor& cond, float phi, int64_t tokens,
                      int64_t columns) {
  require(guided.shape() == cond.shape() && tokens > 0 && guided.size(0) % tokens == 0 &&
              columns >= 0 && columns <= guided.size(1),
          ErrorCode::usage,
          "rescaled guidance needs whole samples of {} tokens twice, got {} and {}", tokens,
          guided.shape().str(), cond.shape().str());
  if (guided.is_meta()) return Tensor::empty(guided.shape(), tensor::DType::f32, guided.device());
  const Tensor from = guided.to(tensor::Device::cpu), like = cond.to(tensor::Device::cpu);
  const Tensor out = Tensor::empty(guided.shape(), tensor::DType::f32);
  for (int64_t begin = 0; begin < from.size(0); begin += tokens) {
    const double spread = deviation(from, begin, begin + tokens, columns);
    const double ratio =
        spread > 0 ? deviation(like, begin, begin + tokens, columns) / spread : 1.0;
    const auto factor = static_cast<float>(phi * ratio + 1.0 - phi);
    for (int64_t t = begin; t < begin + tokens; ++t)
      for (int64_t i = 0; i < from.size(1); ++i)
        out.row<float>(t)[i] = from.row<float>(t)[i] * (i < columns ? factor : 1.0f);
  }
  return out.to(guided.device());
}

}  // namespace tessera::sample
