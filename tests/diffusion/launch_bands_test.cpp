#include "diffusion/launch_bands.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

namespace tessera::diffusion {
namespace {

struct Rig {
  explicit Rig(const char* plan) {
    state.options = {.threads = 2};
    state.options.plan = parse_plan(plan);
    state.options.comm_timeout = std::chrono::seconds(20);
    state.workers.start(state.options);
    meters = runtime::RunMeters(state.workers.ranks.size());
  }
  runtime::ModelState state;
  runtime::RunMeters meters;
};

TEST(LaunchBands, TheFirstRanksShareImages) {
  const Rig rig("data=4,vae=3");
  std::mutex mutex;
  std::set<int> seen;
  for (int round = 0; round < 2; ++round)
    launch_bands(rig.state, rig.meters, {}, 0,
                 [&](nn::Spatial& spatial, comm::Communicator* ranks) {
                   ASSERT_NE(ranks, nullptr);
                   EXPECT_EQ(ranks->size(), 3);
                   const nn::Range lines = spatial.lines(9);
                   EXPECT_EQ(lines, (nn::Range{3 * ranks->rank(), 3 * ranks->rank() + 3}));
                   const std::lock_guard lock(mutex);
                   seen.insert(ranks->rank());
                 });
  EXPECT_EQ(seen, (std::set<int>{0, 1, 2}));
}

TEST(LaunchBands, ARankThatHasImagesAloneStaysInItsScope) {
  const Rig rig("data=2");
  tensor::Scope mine;
  mine.memory = std::make_shared<tensor::MemoryTracker>();
  const tensor::BindScope bind(mine);
  int calls = 0;
  launch_bands(rig.state, rig.meters, {}, 0, [&](nn::Spatial& spatial, comm::Communicator* ranks) {
    EXPECT_EQ(ranks, nullptr);
    EXPECT_EQ(spatial.lines(9), (nn::Range{0, 9}));
    EXPECT_EQ(tensor::current_scope().memory, mine.memory);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tessera::diffusion
