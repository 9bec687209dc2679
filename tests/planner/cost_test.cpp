#include "planner/cost.h"

#include <gtest/gtest.h>

namespace tessera::planner {
namespace {

Device device() {
  Device d;
  d.flops = {{"bf16", 1e12}, {"f32", 1e11}};
  d.memory_bandwidth = 1e9;
  return d;
}

TEST(Cost, IsTheLongerOneOfComputingAndMoving) {
  const Op computes{"matmul", 1e9, 10, {1, 1, 1, tensor::DType::bf16}};
  const Op moves{"matmul", 10, 1e6, {1, 1, 1, tensor::DType::bf16}};
  EXPECT_DOUBLE_EQ(seconds_of(computes, device(), {}), 1e-3);
  EXPECT_DOUBLE_EQ(seconds_of(moves, device(), {}), 1e-3);
}

TEST(Cost, KnowsThePeaksOfDtypes) {
  const Op op{"matmul", 1e9, 10, {1, 1, 1, tensor::DType::f32}};
  EXPECT_DOUBLE_EQ(seconds_of(op, device(), {}), 1e-2);
}

TEST(Cost, FollowsTheCurveOfTheKind) {
  Device d = device();
  d.curves["attention"] = {{{1e6, 0.1}, {1e8, 0.5}}};
  const auto of = [&](double flops) {
    return seconds_of({"attention", flops, 0, {1, 64, 64, tensor::DType::bf16}}, d, {});
  };
  EXPECT_DOUBLE_EQ(of(1e8), 1e8 / 0.5e12);
  EXPECT_NEAR(of(1e7), 1e7 / 0.3e12, 1e-12);  // half way over the logarithm
  EXPECT_DOUBLE_EQ(of(1e3), of(1e6));         // no faster than the smallest known size
}

TEST(Cost, CountsTheLastRoundOfTiles) {
  Device d = device();
  d.units = 10;
  const auto of = [&](int64_t rows) {
    return seconds_of({"matmul", 1e9, 0, {rows, 128, 8, tensor::DType::bf16}}, d, {});
  };
  EXPECT_DOUBLE_EQ(of(1280), 1e-3);         // a full round
  EXPECT_NEAR(of(1408), 2e-3 / 1.1, 1e-9);  // eleven tiles in two rounds
}

TEST(Cost, PadsHeads) {
  Device d = device();
  d.head_multiple = 32;
  const Op op{"attention", 1e9, 0, {128, 72, 72, tensor::DType::bf16}};
  EXPECT_NEAR(seconds_of(op, d, {}), 1e-3 * 96 / 72, 1e-9);
}

TEST(Cost, OfCountedOpsIsTheSumOfAll) {
  const std::map<std::string, tensor::Meter::Entry> work{{"matmul", {4, 4e9, 40}},
                                                         {"add", {2, 0, 2e6}}};
  EXPECT_NEAR(seconds_of(work, tensor::DType::bf16, device(), {}), 6e-3, 1e-9);
}

}  // namespace
}  // namespace tessera::planner
