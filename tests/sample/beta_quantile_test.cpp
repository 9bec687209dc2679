#include "sample/beta_quantile.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tessera/error.h"

namespace tessera::sample {
namespace {

TEST(BetaQuantile, IsTheInverseOfKnownDistributions) {
  for (double p : {0.0, 1e-6, 0.1, 0.25, 0.5, 0.8, 1.0}) {
    EXPECT_NEAR(beta_quantile(p, 1), p, 1e-14);  // uniform
    const double s = std::sin(M_PI * p / 2);     // the arcsine distribution
    EXPECT_NEAR(beta_quantile(p, 0.5), s * s, 1e-14);
  }
}

TEST(BetaQuantile, IsSymmetricAndRefusesWhatIsNoShare) {
  EXPECT_NEAR(beta_quantile(0.3, 0.6) + beta_quantile(0.7, 0.6), 1, 1e-15);
  EXPECT_THROW(beta_quantile(1.5, 0.6), Error);
  EXPECT_THROW(beta_quantile(0.5, 0), Error);
}

}  // namespace
}  // namespace tessera::sample
