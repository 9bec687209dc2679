#include "load/tensor_entry.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::load {
namespace {

using tensor::BlockFormat;

TEST(TensorEntry, CountsBytesOfElementsAndOfBlocks) {
  const TensorEntry plain{"BF16", {2, 3}, 10, 22};
  EXPECT_EQ(plain.bytes(), 12);
  EXPECT_EQ(plain.stored_bytes(), 12);
  const TensorEntry blocks{"F32", {2, 64}, 0, 72, BlockFormat::q4_0};
  EXPECT_EQ(blocks.bytes(), 512);
  EXPECT_EQ(blocks.stored_bytes(), 72);
  const TensorEntry float8{"BF16", {5}, 0, 5, BlockFormat::fp8_e4m3};
  EXPECT_EQ(float8.bytes(), 10);
}

TEST(TensorEntry, RowsAreAPartOfTheBytes) {
  TensorEntry whole{"F32", {3, 64}, 100, 208, BlockFormat::q4_0};
  const TensorEntry part = rows_of(whole, 1, 3);
  EXPECT_EQ(part.sizes, (std::vector<int64_t>{2, 64}));
  EXPECT_EQ(part.begin, 136);
  EXPECT_EQ(part.end, 208);
  EXPECT_EQ(part.format, BlockFormat::q4_0);
}

TEST(TensorEntry, RowsTakeTheirScales) {
  TensorEntry whole{"F32", {3, 4}, 0, 12, BlockFormat::int8};
  whole.scales = std::make_shared<const std::vector<float>>(std::vector<float>{1, 2, 3});
  EXPECT_EQ(*rows_of(whole, 1, 3).scales, (std::vector<float>{2, 3}));
  whole.scales = std::make_shared<const std::vector<float>>(std::vector<float>{5});
  EXPECT_EQ(*rows_of(whole, 1, 3).scales, (std::vector<float>{5}));
}

TEST(TensorEntry, LeadingOnesMayBeLeftOutInGgufAlone) {
  TensorEntry entry{"F32", {3, 4}, 0, 48};
  const std::vector<int64_t> whole{3, 4}, ones{1, 1, 3, 4}, other{2, 3, 4}, behind{3, 4, 1};
  EXPECT_TRUE(entry.has_sizes(whole));
  EXPECT_FALSE(entry.has_sizes(ones));
  entry.drops_ones = true;
  EXPECT_TRUE(entry.has_sizes(whole));
  EXPECT_TRUE(entry.has_sizes(ones));
  EXPECT_FALSE(entry.has_sizes(other));
  EXPECT_FALSE(entry.has_sizes(behind));
}

TEST(TensorEntry, RefusesRowsThatItDoesNotHave) {
  const TensorEntry filter{"F32", {3, 1, 1, 1}, 0, 12}, matrix{"F32", {3, 1}, 0, 12};
  EXPECT_THROW(rows_of(filter, 0, 1), Error);
  EXPECT_THROW(rows_of(matrix, 0, 4), Error);
  EXPECT_THROW(rows_of(matrix, 2, 2), Error);
  EXPECT_THROW(rows_of(matrix, -1, 2), Error);
}

}  // namespace
}  // namespace tessera::load
