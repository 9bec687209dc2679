#include "nn/input_records.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "nn/linear.h"
#include "nn/one_layer.h"

namespace tessera::nn {
namespace {

using tensor::DType;
using tensor::Tensor;

TEST(InputRecords, TheLargestMagnitudesOfAllCallsAreKept) {
  InputRecord record;
  EXPECT_FALSE(record.largest().defined());
  EXPECT_FALSE(record.rows().defined());
  const std::vector<float> one{1, -2, 0, 3}, two{-5, 1, 0, 0};
  record.see(Tensor::from(std::span<const float>(one), {2, 2}));
  record.see(Tensor::from(std::span<const float>(two), {2, 2}));
  EXPECT_EQ(record.largest().to_floats(), (std::vector<float>{5, 3}));
  EXPECT_EQ(record.rows().to_floats(), (std::vector<float>{1, -2, 0, 3, -5, 1, 0, 0}));
}

TEST(InputRecords, RowsOfLaterCallsReplaceSome) {
  InputRecord record, other;
  for (int i = 0; i < 100; ++i) {
    const std::vector<float> values(40, static_cast<float>(i));
    record.see(Tensor::from(std::span<const float>(values), {20, 2}));
    other.see(Tensor::from(std::span<const float>(values), {20, 2}));
  }
  const std::vector<float> rows = record.rows().to_floats();
  EXPECT_EQ(record.rows().size(0), InputRecord::kRows);
  EXPECT_EQ(rows, other.rows().to_floats()) << "the same in each run";
  const auto late = std::ranges::count_if(rows, [](float x) { return x >= 50; });
  EXPECT_GT(late, 32);
  EXPECT_LT(late, 96);
}

TEST(InputRecords, ALayerRecordsByTheNameOfItsWeight) {
  const auto records = std::make_shared<InputRecords>();
  const RecordingWeights weights(std::make_shared<OneLayer>(), records);
  const Tensor x = numbers({3, 24}, 0.1f);
  const Linear layer(weights, "x", 16, 24, DType::f32);
  EXPECT_EQ(layer(x).to_floats(), Linear(OneLayer(), "x", 16, 24, DType::f32)(x).to_floats());
  EXPECT_EQ(records->find("y.weight"), nullptr);
  ASSERT_NE(records->find("x.weight"), nullptr);
  EXPECT_EQ(records->find("x.weight")->rows().to_floats(), x.to_floats());
  (void)layer(Tensor::empty({3, 24}, DType::f32, tensor::Device::meta));
  EXPECT_EQ(records->find("x.weight")->rows().size(0), 3) << "a dry run has no numbers";
}

}  // namespace
}  // namespace tessera::nn
