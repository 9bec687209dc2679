#include "kernels/unit.h"

#include <gtest/gtest.h>

#include <string>

#include "kernels/probe.h"
#include "tessera/error.h"

namespace tessera::kernels {
namespace {

TEST(Unit, NamesParseBack) {
  for (Unit unit : {Unit::fma, Unit::dot}) EXPECT_EQ(parse_unit(name_of(unit), Isa::avx512), unit);
  EXPECT_EQ(parse_unit("fma", Isa::reference), Unit::fma);
}

TEST(Unit, RefusesUnknownAndMissingOnesByName) {
  for (const char* name : {"", "Dot", "dot ", "tile", "fma,dot"}) {
    try {
      parse_unit(name, Isa::amx);
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::usage);
      EXPECT_NE(std::string(e.what()).find(std::string("TESSERA_UNIT='") + name + "'"),
                std::string::npos);
    }
  }
  try {
    parse_unit("dot", Isa::avx2);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_NE(std::string(e.what()).find("avx2"), std::string::npos);
  }
}

TEST(Unit, TheMeasuredOneIsNotTheSlowerOne) {
  const Limits limits = probe_units();
  if (active_isa() < Isa::avx512) {
    EXPECT_EQ(active_unit(), Unit::fma);
    GTEST_SKIP() << "no AVX512_BF16 here";
  }
  const bool dot = measured_unit() == Unit::dot;
  const double chosen = dot ? limits.bf16_dot : limits.f32_fma;
  EXPECT_GT(chosen, 0.8 * (dot ? limits.f32_fma : limits.bf16_dot));
}

}  // namespace
}  // namespace tessera::kernels
