#include "tensor/block_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tessera::tensor {
namespace {

std::vector<float> expanded(BlockFormat format, std::vector<uint8_t> bytes, bool finite = true) {
  const BlockSize size = block_size(format);
  const int64_t blocks = std::ssize(bytes) / size.bytes;
  std::vector<float> values(static_cast<size_t>(blocks * size.elements));
  EXPECT_EQ(expand_blocks(format, reinterpret_cast<const std::byte*>(bytes.data()), blocks,
                          values.data()),
            finite);
  return values;
}

// The definition, sign, exponent and mantissa apart.
float eight_bits(int bits, int exponent_bits, int bias) {
  const int mantissa_bits = 7 - exponent_bits;
  const int exponent = (bits & 0x7f) >> mantissa_bits;
  const double mantissa = (bits & ((1 << mantissa_bits) - 1)) / double(1 << mantissa_bits);
  const double value =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias) : std::ldexp(1 + mantissa, exponent - bias);
  return static_cast<float>(bits & 0x80 ? -value : value);
}

TEST(BlockFormat, EveryFloat8) {
  for (int bits = 0; bits < 256; ++bits) {
    const bool number = (bits & 0x7f) != 0x7f, finite = (bits & 0x7f) < 0x7c;
    const float small = expanded(BlockFormat::fp8_e4m3, {uint8_t(bits)}, number)[0];
    if (number) {
      EXPECT_EQ(small, eight_bits(bits, 4, 7)) << bits;
    }
    const float wide = expanded(BlockFormat::fp8_e5m2, {uint8_t(bits)}, finite)[0];
    if (finite) {
      EXPECT_EQ(wide, eight_bits(bits, 5, 15)) << bits;
    }
  }
  EXPECT_EQ(expanded(BlockFormat::fp8_e4m3, {0x7e})[0], 448);
  EXPECT_EQ(expanded(BlockFormat::int8, {0x80, 0x7f}), (std::vector<float>{-128, 127}));
}

TEST(BlockFormat, NibblesOfABlockOf32) {
  std::vector<uint8_t> block = {0x00, 0x3c};  // 1 as an f16
  for (int j = 0; j < 16; ++j) block.push_back(uint8_t(j | (15 - j) << 4));
  const std::vector<float> q = expanded(BlockFormat::q4_0, block);
  const std::vector<float> table = expanded(BlockFormat::iq4_nl, block);
  for (size_t j = 0; j < 16; ++j) {
    EXPECT_EQ(q[j], float(j) - 8);
    EXPECT_EQ(q[16 + j], 7 - float(j));
  }
  EXPECT_EQ(table[0], -127);
  EXPECT_EQ(table[8], 1);
  EXPECT_EQ(table[16], 113);
}

TEST(BlockFormat, AScaleThatIsNoNumberIsSeen) {
  constexpr BlockFormat kScaled[] = {BlockFormat::q4_0, BlockFormat::q4_1,   BlockFormat::q5_0,
                                     BlockFormat::q5_1, BlockFormat::q8_0,   BlockFormat::q2_k,
                                     BlockFormat::q3_k, BlockFormat::q4_k,   BlockFormat::q5_k,
                                     BlockFormat::q6_k, BlockFormat::iq4_nl, BlockFormat::iq4_xs};
  for (const BlockFormat format : kScaled) {
    const BlockSize size = block_size(format);
    std::vector<uint8_t> zeros(static_cast<size_t>(2 * size.bytes));
    for (const float value : expanded(format, zeros)) EXPECT_EQ(value, 0) << name_of(format);
    // The scale is first or last in the block.
    const bool last = format == BlockFormat::q3_k || format == BlockFormat::q6_k;
    size_t at = last ? zeros.size() - 2 : static_cast<size_t>(size.bytes);
    if (format == BlockFormat::q2_k) at = zeros.size() - 4;
    zeros[at] = 0x00;
    zeros[at + 1] = 0x7e;
    expanded(format, zeros, false);
  }
}

}  // namespace
}  // namespace tessera::tensor
