// The kernel's protocol under adversarial orders of blocks, and with seeded faults.
#include "fused/cuda/seeded.h"
// Include the emulation first.
#include "fused/cuda/device_world.h"
// Include the world first: the sources below depend on the emulation.
#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::fused {
namespace {

using cuda::Fault;

/// Layers with few rows, many flags, and reused places.
Case crowded(uint32_t seed) {
  std::vector<int64_t> tokens = {70, 5};
  if (seed % 3 == 1) tokens = {3, 66, 0};
  if (seed % 3 == 2) tokens = {1, 40, 30, 2};
  return {.experts = 4,
          .slots = 2,
          .tokens = tokens,
          .processors = 1 + int(seed % 2),
          .window = 1,
          .block = 16,
          .seed = seed};
}

/// Few layers of bf16 weights, in more steps than the copy engine has stages.
Case fetched(uint32_t seed) {
  return {.experts = 2,
          .slots = 1,
          .tokens = {20, 3},
          .hidden = 136,
          .inner = 72,
          .weights = DType::bf16,
          .dtype = DType::bf16,
          .processors = 1 + int(seed % 2),
          .parts = 1,
          .window = 1,
          .block = 16,
          .seed = seed};
}

/// The failure of a world under an order; empty: none.
std::string outcome(const Case& is, const emulation::Order& order, int steps = 2) {
  emulation::order = order;
  std::string wrong;
  try {
    DeviceWorld world(is);
    for (int step = 0; step < steps && wrong.empty(); ++step) {
      const auto got = world.run(static_cast<uint32_t>(step));
      emulation::order = {};
      if (!same(got, world.separate())) wrong = "other sums";
      emulation::order = order;
    }
  } catch (const std::exception& error) {  // those of the emulation, too
    wrong = error.what();
  }
  emulation::order = {};
  return wrong;
}

emulation::Order order_of(uint32_t seed) {
  using Kind = emulation::Order::Kind;
  constexpr Kind kKinds[] = {Kind::random, Kind::random, Kind::first_starves, Kind::last_starves,
                             Kind::even};
  return {.kind = kKinds[seed % 5], .seed = seed};
}

// 10,000 with TESSERA_FUSED=long.
TEST(DeviceProtocol, EndsUnderAdversarialOrders) {
  for (const uint32_t seed : seeds(100, 10000))
    ASSERT_EQ(outcome(crowded(seed), order_of(seed)), "") << seed;
}

Case spread_over_gpus(uint32_t seed) {
  Case is = crowded(seed);
  is.apart = true;
  return is;
}

// Two to four GPUs, each with a launch for its rank.
TEST(DeviceProtocol, EndsOnGpusThatWriteEachOthersMemory) {
  for (const uint32_t seed : seeds(50, 1000))
    ASSERT_EQ(outcome(spread_over_gpus(seed), order_of(seed)), "") << seed;
}

// Ranks in turn are on other hosts, which far puts alone reach.
TEST(DeviceProtocol, EndsOnGpusOfSeveralHosts) {
  for (uint32_t seed = 0; seed < amount(30, 1000); ++seed) {
    Case is = spread_over_gpus(seed);
    is.hosts = 2 + static_cast<int>(seed % 3);
    ASSERT_EQ(outcome(is, order_of(seed)), "") << seed;
  }
}

// Weights come by the copy engine, on emulated warpgroups, which are slow.
TEST(DeviceProtocol, EndsWithWeightsThatArriveLate) {
  const EmulatedGpuHas groups(true);
  for (const uint32_t seed : seeds(2, 100))
    for (const bool early : {false, true}) {
      emulation::backwards = early;  // copies at once, and threads in falling order
      ASSERT_EQ(outcome(fetched(seed), order_of(seed)), "") << seed;
    }
}

/// Failures of a fault, over some orders.
std::vector<std::string> found(Fault fault, uint32_t orders = 40, int64_t patience = 20000,
                               Case (*of)(uint32_t) = crowded) {
  cuda::Seeded::fault = fault;
  std::vector<std::string> wrong;
  for (uint32_t seed = 0; seed < orders && wrong.size() < 2; ++seed) {
    Case is = of(seed);
    is.patience = patience;
    const std::string one = outcome(is, order_of(seed), 3);
    if (!one.empty()) wrong.push_back(one);
  }
  cuda::Seeded::fault = Fault::none;
  return wrong;
}
bool says(const std::vector<std::string>& wrong, const std::string& what) {
  return std::any_of(wrong.begin(), wrong.end(),
                     [&](const std::string& one) { return one.find(what) != std::string::npos; });
}

TEST(DeviceFaults, AFlagWithoutFence) {
  EXPECT_TRUE(says(found(Fault::flag_without_fence), "other sums"));
}
TEST(DeviceFaults, AFlagBeforeItsRows) {
  EXPECT_TRUE(says(found(Fault::flag_before_rows), "other sums"));
}
TEST(DeviceFaults, AFlagBeforeTheRowsOfOtherThreads) {
  EXPECT_TRUE(says(found(Fault::flag_before_barrier), "other sums"));
}
TEST(DeviceFaults, AFlagWithoutFenceBetweenGpus) {
  EXPECT_TRUE(says(found(Fault::flag_without_fence, 40, 20000, spread_over_gpus), "other sums"));
}
TEST(DeviceFaults, CountsThatAnotherGpuIsNotTold) {
  EXPECT_TRUE(says(found(Fault::counts_to_one_peer, 4, 3000, spread_over_gpus),
                   "waits in epoch 1 for the counts of rank"));
}
TEST(DeviceFaults, AFlagOfTheWrongEpoch) {
  EXPECT_TRUE(says(found(Fault::flag_of_last_epoch, 2), "waits in epoch 1 for the rows of rank"));
}
TEST(DeviceFaults, FlagsOfAnyEpochAreTaken) {
  EXPECT_TRUE(says(found(Fault::any_epoch_of_flags), "other sums"));
}
TEST(DeviceFaults, CountsOfAnyEpochAreTaken) {
  EXPECT_FALSE(found(Fault::any_epoch_of_counts).empty());
}
TEST(DeviceFaults, CountsThatAPeerIsNotTold) {
  EXPECT_TRUE(says(found(Fault::counts_to_one_peer, 4), "waits in epoch 1 for the counts of rank"));
}
TEST(DeviceFaults, ABellClearedBeforeTheWork) {
  EXPECT_TRUE(says(found(Fault::bell_before_work), "other sums"));
}
TEST(DeviceFaults, ABellThatIsNotCleared) {
  // The processor repeats the gate until the scheduler gives up.
  EXPECT_TRUE(says(found(Fault::bell_not_cleared, 1, 50), "waits in epoch 1 for the"));
}
TEST(DeviceFaults, APlaceFreedBeforeItWasRead) {
  EXPECT_TRUE(says(found(Fault::place_freed_unread, 200), "other sums"));
}
TEST(DeviceFaults, ATaskReadBeforeItsBell) { EXPECT_FALSE(found(Fault::task_read_early).empty()); }
TEST(DeviceFaults, WeightsMultipliedBeforeTheyArrive) {
  const EmulatedGpuHas groups(true);
  EXPECT_FALSE(found(Fault::stage_read_early, 2, 20000, fetched).empty());
}
TEST(DeviceFaults, WeightsOverwrittenBeforeTheyAreMultiplied) {
  const EmulatedGpuHas groups(true);
  EXPECT_FALSE(found(Fault::stage_filled_early, 2, 20000, fetched).empty());
}
TEST(DeviceFaults, BoxesOfRowsWithoutAFence) {
  const EmulatedGpuHas groups(true);
  EXPECT_TRUE(says(found(Fault::boxes_without_fence, 2, 20000, fetched), "without fence_rows"));
}
// Fewer blocks run at once than the program was told: it ends with an error.
TEST(DeviceFaults, BlocksThatDoNotRunAtOnce) {
  Case is = crowded(0);
  is.patience = 500;
  emulation::Order order;
  order.resident = 2;  // six are needed
  EXPECT_NE(outcome(is, order, 1).find("waits in epoch 1 for the"), std::string::npos);
}
TEST(DeviceFaults, NoneWithoutAFault) { EXPECT_TRUE(found(Fault::none).empty()); }

}  // namespace
}  // namespace tessera::fused
