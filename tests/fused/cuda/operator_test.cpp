#include "fused/cuda/device_world.h"
// Include the world first: the sources below depend on the emulation.
#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::fused {
namespace {

using kernels::kOnGpu;

struct DeviceOperatorOf : testing::TestWithParam<bool> {
  const EmulatedGpuHas tiles{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Tiles, DeviceOperatorOf,
                         kOnGpu ? testing::Values(true, true) : testing::Values(false, true),
                         [](const auto& tiles) {
                           return std::string(tiles.index == 0 ? "Warps" : "Warpgroups");
                         });

// Bits of the separate launches, and two layers with other tokens through the same flags.
void expect_the_separate_launches(const Case& is) {
  DeviceWorld world(is);
  for (uint32_t step = 0; step < 2; ++step) {
    const auto got = world.run(step);
    EXPECT_TRUE(same(got, world.separate())) << "step " << step << " seed " << is.seed;
  }
  EXPECT_EQ(world.one().launches(), 2);
}

TEST_P(DeviceOperatorOf, ARankAlone) {
  for (const DType weights : {DType::f32, DType::bf16, DType::i8})
    expect_the_separate_launches({.tokens = {9},
                                  .hidden = 32,
                                  .inner = 48,
                                  .weights = weights,
                                  .dtype = weights == DType::f32 ? DType::f32 : DType::bf16});
}

TEST_P(DeviceOperatorOf, RanksWithRowsOfEachType) {
  for (const DType weights : {DType::bf16, DType::i8})
    for (const DType dtype : {DType::f32, DType::bf16})
      expect_the_separate_launches({.experts = 3,
                                    .tokens = {7, 0, 11},
                                    .hidden = 80,
                                    .inner = 32,
                                    .weights = weights,
                                    .dtype = dtype,
                                    .shared = true,
                                    .most_slots = 1});
}

TEST_P(DeviceOperatorOf, RanksWithAGpuEach) {
  if (kOnGpu) GTEST_SKIP() << "needs several GPUs";
  for (const DType weights : {DType::f32, DType::bf16})
    for (const std::vector<int64_t>& tokens :
         {std::vector<int64_t>{9, 4}, {0, 5, 17}, {3, 3, 1, 20}})
      for (const int hosts : {1, 2}) {
        DeviceWorld world({.experts = 6,
                           .tokens = tokens,
                           .hidden = 40,
                           .inner = 24,
                           .weights = weights,
                           .dtype = weights,
                           .apart = true,
                           .hosts = hosts});
        for (uint32_t step = 0; step < 2; ++step) {
          const auto got = world.run(step);
          EXPECT_TRUE(same(got, world.separate())) << tokens.size() << " " << step;
        }
      }
}

TEST_P(DeviceOperatorOf, TilesInParts) {
  for (const int parts : {1, 2})
    expect_the_separate_launches({.experts = 2,
                                  .slots = 1,
                                  .tokens = {140, 90},
                                  .hidden = 136,
                                  .inner = 72,
                                  .weights = DType::bf16,
                                  .dtype = DType::bf16,
                                  .processors = 4,
                                  .parts = parts,
                                  .window = 1});
}

// No separate launch of warpgroups takes rows of f16.
TEST_P(DeviceOperatorOf, RowsOfF16) {
  for (const DType weights : {DType::bf16, DType::i8}) {
    DeviceWorld world({.hidden = 40, .weights = weights, .dtype = DType::f16});
    const auto got = world.run(), want = world.reference();
    for (size_t r = 0; r < got.size(); ++r) EXPECT_LT(kernels::relative_l2(got[r], want[r]), 6e-3);
  }
}

// No separate launch has them; the cut of the work changes no bit.
TEST_P(DeviceOperatorOf, WeightsOfF16) {
  std::vector<Tensor> before;
  for (const int parts : {1, 3}) {
    DeviceWorld world({.experts = 3,
                       .tokens = {70, 0, 9},
                       .hidden = 136,
                       .inner = 200,
                       .weights = DType::f16,
                       .dtype = DType::f16,
                       .shared = true,
                       .processors = parts,
                       .parts = parts});
    const auto got = world.run(), want = world.reference();
    for (size_t r = 0; r < got.size(); ++r)
      EXPECT_LT(kernels::relative_l2(got[r], want[r]), 1e-3) << r;
    EXPECT_TRUE(before.empty() || same(got, before));
    before = got;
  }
}

TEST_P(DeviceOperatorOf, AllTokensToOneExpert) {
  expect_the_separate_launches({.experts = 4,
                                .slots = 1,
                                .tokens = {130, 1, 70, 64},
                                .processors = 1,
                                .window = 1,
                                .only = 2});
}

TEST(DeviceOperator, ActivationsAndBiases) {
  for (const Activation kind :
       {Activation::geglu, Activation::gelu_tanh, Activation::gelu_erf, Activation::relu,
        Activation::silu, Activation::quick_gelu, Activation::none})
    for (const DType weights : {DType::f32, DType::bf16, DType::i8}) {
      DeviceWorld world({.tokens = {6, 9},
                         .hidden = 24,
                         .inner = 40,
                         .weights = weights,
                         .activation = kind,
                         .biased = true});
      const auto got = world.run(), want = world.reference();
      for (size_t r = 0; r < got.size(); ++r)
        EXPECT_LT(kernels::relative_l2(got[r], want[r]), weights == DType::bf16 ? 6e-3
                                                         : weights == DType::i8 ? 1e-4
                                                                                : 3e-6)
            << static_cast<int>(kind) << " " << tensor::name_of(weights);
    }
}

Case random_case(uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::initializer_list<int> of) {
    return *(of.begin() + random() % of.size());
  };
  Case is{.experts = pick({4, 6, 8, 16, 31, 64, 128}), .seed = seed};
  is.slots = std::min(is.experts, pick({1, 2, 3, 8}));
  is.tokens.clear();
  for (int r = pick({1, 2, 3, 4}); r > 0; --r)
    is.tokens.push_back(random() % 4 == 0 ? 0 : random() % 40 + 1);
  is.hidden = pick({8, 16, 40});
  is.inner = pick({8, 24, 72});
  is.weights = random() % 8 ? DType::f32 : DType::bf16;
  is.dtype = is.weights == DType::f32 || random() % 2 ? DType::f32 : DType::bf16;
  is.shared = random() % 3 == 0;
  is.processors = pick({1, 2, 3});
  is.parts = pick({0, 1, 2});
  is.window = pick({0, 1, 2});
  is.block = pick({1, 4, 16});
  is.most_slots = random() % 3 == 0 ? pick({1, 2}) : 0;
  is.only = random() % 8 == 0 ? int(random() % unsigned(is.experts)) : -1;
  if (is.only >= 0) is.slots = 1;  // a token chooses an expert once
  return is;
}

// 1,000 with TESSERA_FUSED=long, and on GPUs.
TEST(DeviceOperator, RandomLayers) {
  for (const uint32_t seed : seeds(kOnGpu ? 1000 : 30, 1000)) {
    const EmulatedGpuHas room(false, 16);
#if !defined(TESSERA_ON_GPU)
    emulation::order.seed = seed;
#endif
    DeviceWorld world(random_case(seed));
    const auto got = world.run();
    ASSERT_TRUE(same(got, world.separate())) << seed;
  }
}

TEST(DeviceOperator, RefusesWhatItDoesNotHave) {
  const auto message = [](const Case& is) {
    try {
      DeviceWorld(is).run();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message({.hidden = 12}).find("multiples of 8"), std::string::npos);
  EXPECT_NE(message({.dtype = DType::bf16}).find("weights of f32 and rows of bf16"),
            std::string::npos);
  EXPECT_NE(message({.weights = DType::f16}).find("weights of f16 and rows of f32"),
            std::string::npos);
  EXPECT_NE(
      message({.tokens = std::vector<int64_t>(9, 1)}).find("9 ranks; at most 8 share a launch"),
      std::string::npos);
  EXPECT_EQ(message({.processors = 5}), "");
  EXPECT_NE(message({.processors = 6000}).find("must run at once, the GPU runs"),
            std::string::npos);
  EXPECT_NE(message({.only = 4}).find("a token of rank 0 goes to none of 4 experts"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::fused
