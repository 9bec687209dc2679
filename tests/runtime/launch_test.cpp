#include "runtime/launch.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "base/stop.h"
#include "tessera/error.h"

namespace tessera::runtime {
namespace {

struct Rig {
  explicit Rig(const char* plan) {
    state.options = {.threads = 2};
    state.options.plan = parse_plan(plan);
    state.options.comm_timeout = std::chrono::seconds(20);
    state.workers.start(state.options);
    meters = RunMeters(state.workers.ranks.size());
  }
  ModelState state;
  RunMeters meters;
};

TEST(Launch, RanksThatAreThreadsWorkInScopesOfTheirOwn) {
  const Rig rig("data=3");
  std::mutex mutex;
  std::set<int> seen;
  launch_ranks(rig.state, rig.meters, {}, [&](comm::Communicator* world) {
    ASSERT_NE(world, nullptr);
    EXPECT_EQ(world->size(), 3);
    const auto rank = size_t(world->rank());
    EXPECT_EQ(tensor::current_scope().memory, rig.meters.ranks[rank].memory);
    EXPECT_EQ(tensor::current_scope().meter, rig.meters.ranks[rank].work);
    const std::lock_guard lock(mutex);
    seen.insert(world->rank());
  });
  EXPECT_EQ(seen, (std::set<int>{0, 1, 2}));
}

TEST(Launch, OneRankHasNoWorldAndStopsAnywhere) {
  const Rig rig("");
  std::stop_source source;
  source.request_stop();
  int calls = 0;
  launch_ranks(rig.state, rig.meters, source.get_token(), [&](comm::Communicator* world) {
    EXPECT_EQ(world, nullptr);
    EXPECT_EQ(tensor::current_scope().memory, rig.meters.ranks[0].memory);
    EXPECT_EQ(tensor::current_scope().meter, rig.meters.ranks[0].work);
    EXPECT_TRUE(base::current_stop().stop_requested());
    ++calls;
  });
  EXPECT_EQ(calls, 1);
}

TEST(Launch, AnErrorOfARankIsTheErrorOfAll) {
  const Rig rig("data=2");
  try {
    launch_ranks(rig.state, rig.meters, {}, [&](comm::Communicator* world) {
      if (world->rank() == 1) throw Error(ErrorCode::model, "spoilt");
      world->receive(1, {"never", -1}).wait();
    });
    FAIL() << "went on";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("spoilt"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tessera::runtime
