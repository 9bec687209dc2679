#include "tensor/block_format.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/dtype.h"

namespace tessera::tensor {
namespace {

constexpr int kSuper = 256;  // elements of a K-quant's block

float half_at(const uint8_t* p) {
  return to_float(Float16{static_cast<uint16_t>(p[0] | p[1] << 8)});
}

// Elements 0-15 are the low nibbles, 16-31 the high nibbles.
template <class Put>
void each_nibble(const uint8_t* q, const Put& put) {
  for (int j = 0; j < 16; ++j) {
    put(j, q[j] & 15);
    put(j + 16, q[j] >> 4);
  }
}

uint32_t bits_at(const uint8_t* p) {
  return uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24;
}

constexpr std::array<float, 16> kNonLinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};

bool q4_0(const uint8_t* b, float* to) {
  const float d = half_at(b);
  each_nibble(b + 2, [&](int j, int q) { to[j] = d * static_cast<float>(q - 8); });
  return std::isfinite(d);
}

bool q4_1(const uint8_t* b, float* to) {
  const float d = half_at(b), m = half_at(b + 2);
  each_nibble(b + 4, [&](int j, int q) {
    const float scaled = d * static_cast<float>(q);
    to[j] = scaled + m;
  });
  return std::isfinite(d) && std::isfinite(m);
}

int fifth_bit(uint32_t high, int j) { return static_cast<int>(high >> j & 1) << 4; }

bool q5_0(const uint8_t* b, float* to) {
  const float d = half_at(b);
  const uint32_t high = bits_at(b + 2);
  each_nibble(b + 6,
              [&](int j, int q) { to[j] = d * static_cast<float>((q | fifth_bit(high, j)) - 16); });
  return std::isfinite(d);
}

bool q5_1(const uint8_t* b, float* to) {
  const float d = half_at(b), m = half_at(b + 2);
  const uint32_t high = bits_at(b + 4);
  each_nibble(b + 8, [&](int j, int q) {
    const float scaled = d * static_cast<float>(q | fifth_bit(high, j));
    to[j] = scaled + m;
  });
  return std::isfinite(d) && std::isfinite(m);
}

bool q8_0(const uint8_t* b, float* to) {
  const float d = half_at(b);
  for (int j = 0; j < 32; ++j) to[j] = d * static_cast<float>(std::bit_cast<int8_t>(b[2 + j]));
  return std::isfinite(d);
}

bool iq4_nl(const uint8_t* b, float* to) {
  const float d = half_at(b);
  each_nibble(b + 2, [&](int j, int q) { to[j] = d * kNonLinear[static_cast<size_t>(q)]; });
  return std::isfinite(d);
}

constexpr int kSubBlock = 16;

// Two bits of each element of sub-block i are in a bit plane of the bytes of a half of 128.
struct Plane {
  const uint8_t* bytes;
  int shift;
  int operator()(int j) const { return bytes[j] >> shift & 3; }
};
Plane plane(const uint8_t* q, int i) { return {q + i / 8 * 32 + i % 2 * kSubBlock, i % 8 / 2 * 2}; }

bool q2_k(const uint8_t* b, float* to) {
  const float d = half_at(b + 80), m = half_at(b + 82);
  for (int i = 0; i < kSuper / kSubBlock; ++i, to += kSubBlock) {
    const float scale = d * static_cast<float>(b[i] & 15);
    const float least = m * static_cast<float>(b[i] >> 4);
    const Plane q = plane(b + 16, i);
    for (int j = 0; j < kSubBlock; ++j) {
      const float scaled = scale * static_cast<float>(q(j));
      to[j] = scaled - least;
    }
  }
  return std::isfinite(d) && std::isfinite(m);
}

bool q3_k(const uint8_t* b, float* to) {
  const uint8_t* const scales = b + 96;
  const float d = half_at(b + 108);
  for (int i = 0; i < kSuper / kSubBlock; ++i, to += kSubBlock) {
    const int low = (i < 8 ? scales[i] : scales[i - 8] >> 4) & 15;
    const int high = scales[8 + i % 4] >> i / 4 * 2 & 3;
    const float scale = d * static_cast<float>((low | high << 4) - 32);
    const Plane q = plane(b + 32, i);
    const uint8_t* const third = b + i % 2 * kSubBlock;
    for (int j = 0; j < kSubBlock; ++j)
      to[j] = scale * static_cast<float>(q(j) - (~third[j] >> i / 2 & 1) * 4);
  }
  return std::isfinite(d);
}

// Scale and minimum of a sub-block of 32, six bits each, in twelve bytes.
struct SixBits {
  int scale, least;
};
SixBits six_bits(const uint8_t* s, int i) {
  if (i < 4) return {s[i] & 63, s[4 + i] & 63};
  return {(s[4 + i] & 15) | (s[i - 4] >> 2 & 0x30), s[4 + i] >> 4 | (s[i] >> 2 & 0x30)};
}

// Q4_K and Q5_K; `high`: fifth bits, or null.
bool with_minima(const uint8_t* b, const uint8_t* high, const uint8_t* q, float* to) {
  const float d = half_at(b), m = half_at(b + 2);
  for (int i = 0; i < kSuper / 32; ++i) {
    const auto [scale, least] = six_bits(b + 4, i);
    const float factor = d * static_cast<float>(scale), minimum = m * static_cast<float>(least);
    for (int j = 0; j < 32; ++j) {
      int value = q[i / 2 * 32 + j] >> i % 2 * 4 & 15;
      if (high) value |= (high[j] >> i & 1) << 4;
      const float scaled = factor * static_cast<float>(value);
      to[i * 32 + j] = scaled - minimum;
    }
  }
  return std::isfinite(d) && std::isfinite(m);
}

bool q4_k(const uint8_t* b, float* to) { return with_minima(b, nullptr, b + 16, to); }
bool q5_k(const uint8_t* b, float* to) { return with_minima(b, b + 16, b + 48, to); }

bool q6_k(const uint8_t* b, float* to) {
  const float d = half_at(b + 208);
  for (int i = 0; i < kSuper / kSubBlock; ++i, to += kSubBlock) {
    const float scale = d * static_cast<float>(std::bit_cast<int8_t>(b[192 + i]));
    const uint8_t* const low = b + i / 8 * 64 + i % 4 * kSubBlock;
    const Plane high = plane(b + 128, i);
    for (int j = 0; j < kSubBlock; ++j) {
      const int nibble = low[j] >> i % 8 / 4 * 4 & 15;
      to[j] = scale * static_cast<float>((nibble | high(j) << 4) - 32);
    }
  }
  return std::isfinite(d);
}

bool iq4_xs(const uint8_t* b, float* to) {
  const float d = half_at(b);
  const int high = b[2] | b[3] << 8;
  for (int i = 0; i < kSuper / 32; ++i) {
    const int low = b[4 + i / 2] >> i % 2 * 4 & 15;
    const float scale = d * static_cast<float>((low | (high >> 2 * i & 3) << 4) - 32);
    each_nibble(b + 8 + i * 16,
                [&](int j, int q) { to[i * 32 + j] = scale * kNonLinear[static_cast<size_t>(q)]; });
  }
  return std::isfinite(d);
}

bool int8(const uint8_t* b, float* to) {
  *to = static_cast<float>(std::bit_cast<int8_t>(*b));
  return true;
}

bool fp8_e5m2(const uint8_t* b, float* to) {
  *to = to_float(Float16{static_cast<uint16_t>(*b << 8)});
  return std::isfinite(*to);
}

bool fp8_e4m3(const uint8_t* b, float* to) {
  const uint8_t bits = *b;
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  // 2^-9 is the unit of subnormals.
  const float magnitude = exponent == 0
                              ? std::ldexp(static_cast<float>(mantissa), -9)
                              : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  const bool number = (bits & 0x7f) != 0x7f;
  *to = number ? (bits & 0x80 ? -magnitude : magnitude) : NAN;
  return number;
}

struct Format {
  const char* name;
  BlockSize size;
  bool (*expand)(const uint8_t* block, float* to);
};

// In the order of BlockFormat.
constexpr std::array<Format, 15> kFormats = {{{"F8_E4M3", {1, 1}, fp8_e4m3},
                                              {"F8_E5M2", {1, 1}, fp8_e5m2},
                                              {"I8", {1, 1}, int8},
                                              {"Q4_0", {32, 18}, q4_0},
                                              {"Q4_1", {32, 20}, q4_1},
                                              {"Q5_0", {32, 22}, q5_0},
                                              {"Q5_1", {32, 24}, q5_1},
                                              {"Q8_0", {32, 34}, q8_0},
                                              {"Q2_K", {kSuper, 84}, q2_k},
                                              {"Q3_K", {kSuper, 110}, q3_k},
                                              {"Q4_K", {kSuper, 144}, q4_k},
                                              {"Q5_K", {kSuper, 176}, q5_k},
                                              {"Q6_K", {kSuper, 210}, q6_k},
                                              {"IQ4_NL", {32, 18}, iq4_nl},
                                              {"IQ4_XS", {kSuper, 136}, iq4_xs}}};

const Format& of(BlockFormat format) { return kFormats[static_cast<size_t>(format)]; }

}  // namespace

BlockSize block_size(BlockFormat format) { return of(format).size; }

const char* name_of(BlockFormat format) { return of(format).name; }

bool expand_blocks(BlockFormat format, const std::byte* from, int64_t blocks, float* to) {
  const Format& f = of(format);
  const auto* block = reinterpret_cast<const uint8_t*>(from);
  bool finite = true;
  for (int64_t i = 0; i < blocks; ++i, block += f.size.bytes, to += f.size.elements)
    finite = f.expand(block, to) && finite;
  return finite;
}

}  // namespace tessera::tensor
