#include "kernels/waves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/table.h"

namespace tessera::kernels {
namespace {

TEST(Waves, AreCosinesAndSinesInEitherOrder) {
  const std::vector<float> t = {0, 3.5f, 999}, frequency = {1, 0.01f};
  for (Isa isa : available_isas())
    for (bool sin_first : {false, true}) {
      std::vector<float> y(3 * 5, -7);
      cpu_table(isa).waves({t.data(), frequency.data(), 3, 2, 2.0f, sin_first, y.data(), 5});
      for (size_t r = 0; r < 3; ++r) {
        for (size_t i = 0; i < 2; ++i) {
          const float angle = 2.0f * t[r] * frequency[i];
          EXPECT_NEAR(y[r * 5 + (sin_first ? 2 : 0) + i], std::cos(angle), 1e-6);
          EXPECT_NEAR(y[r * 5 + (sin_first ? 0 : 2) + i], std::sin(angle), 1e-6);
        }
        EXPECT_EQ(y[r * 5 + 4], -7);  // the last row of an odd number stays
      }
    }
}

}  // namespace
}  // namespace tessera::kernels
