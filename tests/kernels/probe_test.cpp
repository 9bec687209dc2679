#include "kernels/probe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "kernels/bf16_path.h"

namespace tessera::kernels {
namespace {

TEST(Probe, UnitsOfTheInstructionSetHaveARate) {
  const Limits limits = probe_units();
  if (active_isa() < Isa::avx2) {
    EXPECT_EQ(limits.product(true), 0);
    GTEST_SKIP() << "the reference has no unit of its own";
  }
  EXPECT_GT(limits.f32_fma, 1e9);
  EXPECT_EQ(limits.bf16_dot > 1e9, active_isa() >= Isa::avx512 && has_dot_products());
  EXPECT_EQ(limits.bf16_tile > 0, active_isa() >= Isa::amx);
  EXPECT_GE(limits.product(true), limits.product(false));
}

TEST(Probe, VectorsAreMeasuredInAMoment) {
  const Limits limits = probe_vectors();
  EXPECT_EQ(limits.f32_fma > 0, detected_isa() >= Isa::avx512);
  EXPECT_EQ(limits.bf16_dot > 0, detected_isa() >= Isa::avx512 && has_dot_products());
}

TEST(Probe, MemoryIsRead) {
  const Limits limits = probe_limits(int64_t{8} << 20);
  EXPECT_EQ(limits.read > 0, active_isa() >= Isa::avx2);
}

TEST(Probe, BestOfSeveralIsTheShortest) {
  int calls = 0;
  const auto slow = std::chrono::milliseconds(50);
  const double s = best_seconds(
      [&] {
        if (++calls != 2) std::this_thread::sleep_for(slow);
      },
      3);
  EXPECT_EQ(calls, 3);
  EXPECT_LT(s, std::chrono::duration<double>(slow).count());
}

}  // namespace
}  // namespace tessera::kernels
