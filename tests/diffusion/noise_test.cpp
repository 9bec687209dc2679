#include "diffusion/noise.h"

#include <gtest/gtest.h>

namespace tessera::diffusion {
namespace {

TEST(Noise, GoesOnWhereItStopped) {
  for (NoiseSource source : {NoiseSource::torch, NoiseSource::philox}) {
    Noise a(source, {3}), b(source, {3});
    const auto first = a.draw({2, 16}).to_floats(), second = a.draw({2, 16}).to_floats();
    EXPECT_EQ(first, b.draw({2, 16}).to_floats());
    EXPECT_NE(first, second);
    EXPECT_EQ(second, b.draw({2, 16}).to_floats());
  }
}

TEST(Noise, OfSeveralSeedsIsThatOfEachAlone) {
  for (NoiseSource source : {NoiseSource::torch, NoiseSource::philox}) {
    Noise both(source, {3, 5}), three(source, {3}), five(source, {5});
    for (int i = 0; i < 2; ++i) {
      auto wanted = three.draw({1, 18}).to_floats();
      const auto second = five.draw({1, 18}).to_floats();
      wanted.insert(wanted.end(), second.begin(), second.end());
      EXPECT_EQ(both.draw({2, 18}).to_floats(), wanted);
    }
  }
}

}  // namespace
}  // namespace tessera::diffusion
