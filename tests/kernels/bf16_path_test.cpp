#include "kernels/bf16_path.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "kernels/avx512/vector.h"
#include "kernels/probe.h"
#include "tessera/error.h"

namespace tessera::kernels {
namespace {

TEST(Bf16Path, NamesParseBack) {
  for (Bf16Path unit : {Bf16Path::fma, Bf16Path::dot})
    EXPECT_EQ(parse_bf16_path(name_of(unit), Isa::avx512), unit);
  EXPECT_EQ(parse_bf16_path("fma", Isa::reference), Bf16Path::fma);
}

TEST(Bf16Path, RefusesUnknownAndMissingOnesByName) {
  for (const char* name : {"", "Dot", "dot ", "tile", "fma,dot"}) {
    try {
      parse_bf16_path(name, Isa::amx);
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      EXPECT_NE(std::string(e.what()).find(std::string("TESSERA_UNIT='") + name + "'"),
                std::string::npos);
    }
  }
  try {
    parse_bf16_path("dot", Isa::avx2);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_NE(std::string(e.what()).find("avx2"), std::string::npos);
  }
}

#if defined(__x86_64__)
TESSERA_AVX512_BEGIN
using Sixteen = std::array<uint32_t, 16>;
void in_steps(const Sixteen& from, uint16_t* to) {
  const __m256i half = avx512::to_bf16_in_steps(_mm512_loadu_ps(from.data()));
  std::memcpy(to, &half, sizeof half);
}
void at_once(const Sixteen& from, uint16_t* to) {
  const __m256bh half = _mm512_cvtneps_pbh(_mm512_loadu_ps(from.data()));
  std::memcpy(to, &half, sizeof half);
}
TESSERA_AVX512_END

// VCVTNEPS2BF16 by Intel's manual.
uint16_t as_documented(uint32_t bits) {
  const uint32_t exponent = bits >> 23 & 0xff, fraction = bits & 0x7fffff;
  if (exponent == 0) return static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (exponent == 255 && fraction) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

TEST(Bf16Path, RoundingInStepsHasTheBitsOfTheInstruction) {
  if (detected_isa() < Isa::avx512) GTEST_SKIP() << "this CPU has no AVX-512";
  const Sixteen low = {0,      1,      2,      0x40,   0x7ffe, 0x7fff, 0x8000, 0x8001,
                       0x8002, 0xbfff, 0xc000, 0xc001, 0xfffd, 0xfffe, 0xffff, 0x1234};
  for (uint32_t high = 0; high < 0x10000; ++high) {
    Sixteen from = low;
    for (uint32_t& x : from) x |= high << 16;
    std::array<uint16_t, 16> steps{}, once{}, want{};
    for (size_t i = 0; i < 16; ++i) want[i] = as_documented(from[i]);
    in_steps(from, steps.data());
    ASSERT_EQ(steps, want) << high;
    if (!has_dot_products()) continue;
    at_once(from, once.data());
    ASSERT_EQ(once, want) << high;
  }
}
#endif

TEST(Bf16Path, TheMeasuredOneIsNotTheSlowerOne) {
  const Limits limits = probe_units();
  if (active_isa() < Isa::avx512 || !has_dot_products()) {
    EXPECT_EQ(active_bf16_path(), Bf16Path::fma);
    GTEST_SKIP() << "no AVX512_BF16 here";
  }
  const bool dot = measured_bf16_path() == Bf16Path::dot;
  const double chosen = dot ? limits.bf16_dot : limits.f32_fma;
  EXPECT_GT(chosen, 0.8 * (dot ? limits.f32_fma : limits.bf16_dot));
}

}  // namespace
}  // namespace tessera::kernels
