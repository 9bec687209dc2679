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

TEST(Cost, AKindThatMovesBytesMayHaveACurve) {
  Device d = device();
  d.curves["memory"] = {{{1e3, 0.5}}};
  d.curves["layer_norm"] = {{{1e3, 0.25}}};
  const auto of = [&](const char* kind) {
    return seconds_of({kind, 1e3, 1e6, {1, 1, 0, tensor::DType::bf16}}, d, {});
  };
  EXPECT_DOUBLE_EQ(of("silu"), 2e-3);
  EXPECT_DOUBLE_EQ(of("layer_norm"), 4e-3);
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

TEST(Cost, AProductOfFewerRowsIsNotSlower) {
  Device d = device();
  d.units = 100;
  d.curves["matmul"] = {{{1e7, 0.1}, {1e9, 0.6}, {1e11, 0.9}}};
  double before = 0;
  for (int64_t rows = 16; rows <= 16384; rows *= 2) {
    const double flops = 2.0 * double(rows) * 2048 * 2048;
    const double seconds =
        seconds_of({"matmul", flops, 0, {rows, 2048, 2048, tensor::DType::bf16}}, d, {});
    EXPECT_GE(seconds, before * (1 - 1e-12)) << rows;
    before = seconds;
  }
}

TEST(Cost, PadsHeads) {
  Device d = device();
  d.head_multiple = 32;
  const Op op{"attention", 1e9, 0, {128, 72, 72, tensor::DType::bf16}};
  EXPECT_NEAR(seconds_of(op, d, {}), 1e-3 * 96 / 72, 1e-9);
}

TEST(Cost, AProgramMayTakeSeveralKernelsForAnOp) {
  Software software;
  software.unfused = {{"rms_norm", {8, 9}}, {"combine", {12, 5}}, {"other", {4, 2.5}}};
  Device d = device();
  d.op_seconds = 1e-3;
  const Op norm{"rms_norm", 0, 1e6, {1, 1, 0, tensor::DType::bf16}};
  EXPECT_NEAR(seconds_of(norm, d, software), 9e-3 + 8e-3, 1e-9);
  EXPECT_EQ(kernels_of({"guide", 0, 1, {}}, software), 4);
  EXPECT_EQ(kernels_of(norm, {}), 1);
  // A merge of four parts reads four parts of 96 rows and writes one.
  const Op merge{"combine", 0, 5 * 96 * 128 * 4.0, {4 * 96, 128, 0, tensor::DType::f32}};
  EXPECT_EQ(kernels_of(merge, software), 36);
}

TEST(Cost, OfCountedOpsIsTheSumOfAll) {
  const std::map<std::string, tensor::Meter::Entry> work{{"matmul", {4, 4e9, 40}},
                                                         {"add", {2, 0, 2e6}}};
  EXPECT_NEAR(seconds_of(work, tensor::DType::bf16, device(), {}), 6e-3, 1e-9);
}

}  // namespace
}  // namespace tessera::planner
