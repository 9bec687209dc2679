#include "pipeline/noise.h"

#include <gtest/gtest.h>

namespace tessera::pipeline {
namespace {

TEST(Noise, GoesOnWhereItStopped) {
  for (NoiseSource source : {NoiseSource::torch, NoiseSource::philox}) {
    Noise a(source, 3), b(source, 3);
    const auto first = a.draw({2, 16}).to_floats(), second = a.draw({2, 16}).to_floats();
    EXPECT_EQ(first, b.draw({2, 16}).to_floats());
    EXPECT_NE(first, second);
    EXPECT_EQ(second, b.draw({2, 16}).to_floats());
  }
}

}  // namespace
}  // namespace tessera::pipeline
