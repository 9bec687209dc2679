#include "media/libav.h"

#include <gtest/gtest.h>

namespace tessera::media {
namespace {

TEST(Libav, IsLoadedOnceWithAllItsFunctions) {
  const Libav& av = libav();
  EXPECT_EQ(&av, &libav());
#define TESSERA_LIBAV_THERE(library, name) EXPECT_NE(av.name, nullptr) << #name;
  TESSERA_LIBAV(TESSERA_LIBAV_THERE)
#undef TESSERA_LIBAV_THERE
  EXPECT_EQ(av.av_d2q(0.5, 100).den, 2);
}

}  // namespace
}  // namespace tessera::media
