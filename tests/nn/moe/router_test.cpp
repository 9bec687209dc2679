#include "nn/moe/router.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/error.h"

namespace tessera::nn {
namespace {

using tensor::DType;
using tensor::Tensor;

Router identity(int k) {
  const Tensor w = Tensor::from(std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1}, {3, 3});
  return {ops::pack_weight(w, DType::f32), {.top_k = k}};
}

TEST(Router, LogitsAreF32WhateverTheActivationsAre) {
  Tensor x = Tensor::empty({1, 3}, DType::bf16);
  for (int i = 0; i < 3; ++i) x.data<tensor::BFloat16>()[i] = tensor::to_bfloat16(0.5f * float(i));
  const Tensor logits = identity(1).logits(x);
  EXPECT_EQ(logits.dtype(), DType::f32);
  EXPECT_EQ(logits.to_floats(), (std::vector<float>{0, 0.5f, 1}));
}

TEST(Router, ChoosesTheLargestFirst) {
  const Tensor x = Tensor::from(std::vector<float>{1, 3, 2, 2, 2, 2}, {2, 3});
  const ops::Routing r = identity(2)(x);
  EXPECT_EQ(r.ids.to_ints(), (std::vector<int64_t>{1, 2, 0, 1}));  // ties: the lowest index
  EXPECT_NEAR(r.weights.data<float>()[2], 1.0f / 3, 1e-6);
}

TEST(Router, NamesTheBlockWhoseScoresAreNoNumbers) {
  const auto said = [](float weight, float token) {
    const std::vector<float> weights{weight, 1, 1, 1}, tokens{token, 2};
    Router router{ops::pack_weight(Tensor::from(weights, {2, 2}), DType::f32), {.top_k = 1}};
    router.block = 7;
    try {
      router(Tensor::from(tokens, {1, 2}));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::model);
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(said(1, 1), "");
  EXPECT_TRUE(said(NAN, 1).starts_with("the router of block 7")) << said(NAN, 1);
  EXPECT_TRUE(said(INFINITY, 1).starts_with("the router of block 7"));
  EXPECT_TRUE(said(1, INFINITY).starts_with("block 7"));
}

TEST(Router, MetaGivesShapes) {
  const Router router{
      ops::pack_weight(Tensor::empty({8, 4}, DType::f32, tensor::Device::meta), DType::f32),
      {.top_k = 2}};
  const ops::Routing r = router(Tensor::empty({5, 4}, DType::bf16, tensor::Device::meta));
  EXPECT_EQ(r.ids.shape(), tensor::Shape({5, 2}));
  EXPECT_EQ(r.weights.shape(), tensor::Shape({5, 2}));
}

}  // namespace
}  // namespace tessera::nn
