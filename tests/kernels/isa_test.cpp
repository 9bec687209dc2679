#include "kernels/isa.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::kernels {
namespace {

TEST(Isa, NamesParseBack) {
  for (Isa isa : {Isa::reference, Isa::avx2, Isa::avx512, Isa::amx})
    EXPECT_EQ(parse_isa(name_of(isa), Isa::amx), isa);
}

TEST(Isa, RefusesUnknownAndMissingSets) {
  EXPECT_THROW(parse_isa("sse", Isa::amx), Error);
  EXPECT_THROW(parse_isa("", Isa::amx), Error);
  EXPECT_THROW(parse_isa("amx", Isa::avx512), Error);
  try {
    parse_isa("avx512", Isa::avx2);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_NE(std::string(e.what()).find("avx2"), std::string::npos);
  }
}

TEST(Isa, AvailableSetsRiseToTheDetectedOne) {
  const IsaList list = available_isas();
  ASSERT_GE(list.count, 1);
  EXPECT_EQ(list.items[0], Isa::reference);
  EXPECT_EQ(list.items[list.count - 1], detected_isa());
  EXPECT_LE(active_isa(), detected_isa());
}

}  // namespace
}  // namespace tessera::kernels
