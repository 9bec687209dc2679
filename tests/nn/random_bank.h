#pragma once

#include <memory>
#include <random>
#include <vector>

#include "nn/seams.h"
#include "ops/experts.h"

namespace tessera::nn::random_bank {

using tensor::DType;
using tensor::Tensor;

inline Tensor normal(const tensor::Shape& shape, uint32_t seed, float scale = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> draw(0, scale);
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (float& v : values) v = draw(engine);
  return Tensor::from(std::span<const float>(values), shape);
}

/// A layer of `experts` experts [hidden 32, inner 16] and a shared expert; experts of `mine` only.
inline ExpertWeights bank(int experts, uint32_t seed, DType dtype,
                          const std::vector<bool>& mine = {}) {
  auto routed = std::make_shared<std::vector<ops::Expert>>();
  const auto one = [&](uint32_t s) {
    return ops::Expert{
        ops::pack_paired_weight(normal({16, 32}, s, 0.2f), normal({16, 32}, s + 1, 0.2f), dtype),
        ops::pack_weight(normal({32, 16}, s + 2, 0.2f), dtype)};
  };
  for (int e = 0; e < experts; ++e)
    routed->push_back(mine.empty() || mine[static_cast<size_t>(e)] ? one(seed + 10 * uint32_t(e))
                                                                   : ops::Expert{});
  return {std::move(routed), one(seed + 7777)};
}

/// Columns `inner` of the width, 20, of `experts` experts [hidden 32] in f32 and of a shared
/// expert.
inline ExpertWeights slice_of_bank(int experts, Range inner) {
  auto routed = std::make_shared<std::vector<ops::Expert>>();
  const auto one = [&](uint32_t s) {
    return ops::Expert{
        ops::pack_paired_weight(normal({20, 32}, s, 0.2f).slice(0, inner.begin, inner.end),
                                normal({20, 32}, s + 1, 0.2f).slice(0, inner.begin, inner.end),
                                DType::f32),
        ops::pack_weight(normal({32, 20}, s + 2, 0.2f).slice(1, inner.begin, inner.end),
                         DType::f32)};
  };
  for (int e = 0; e < experts; ++e) routed->push_back(one(10 * uint32_t(e)));
  return {std::move(routed), one(7777)};
}

inline Router router(int experts, int top_k, uint32_t seed) {
  Router r;
  r.weight = ops::pack_weight(normal({experts, 32}, seed), DType::f32);
  r.options.top_k = top_k;
  return r;
}

}  // namespace tessera::nn::random_bank
