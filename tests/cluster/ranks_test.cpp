#include "cluster/ranks.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "base/fail.h"
#include "cluster/on_processes.h"
#include "comm/collectives.h"

namespace tessera::cluster {
namespace {

using namespace std::chrono_literals;

TEST(Ranks, ThreadsAreAllHereAndRankZeroSpeaksForThem) {
  const Ranks ranks = Ranks::threads(3, 10s);
  EXPECT_TRUE(ranks.all_here() && ranks.first() && ranks.here(2));
  EXPECT_EQ(ranks.mine(2), (std::vector<int>{0, 1}));
  EXPECT_EQ(ranks.count_here(), 3);
  EXPECT_TRUE(ranks.any_here(2, 3));
  EXPECT_FALSE(ranks.any_here(2, 2));
  EXPECT_TRUE(ranks.speaks(0));
  EXPECT_FALSE(ranks.speaks(1));
  EXPECT_EQ(ranks.place(2), 2);
  EXPECT_EQ(ranks.bytes_here({4, 9, 2}), 15);
  EXPECT_TRUE(ranks.word(true));
  EXPECT_EQ(ranks.most(7), 7);
  EXPECT_EQ(ranks.sum(7), 7);
  EXPECT_TRUE(ranks.sent().empty());
  ranks.between_processes([](comm::Communicator&) { FAIL() << "there is one process"; });
  ranks.require_same([]() -> RunFingerprint { throw std::logic_error("nothing is compared"); });
}

TEST(Ranks, AProcessHasItsOwnAndAgreesWithTheOthers) {
  on_processes(3, [](const Processes& processes) {
    const int own = processes.rank();
    const Ranks ranks = Ranks::processes(processes, 3, tensor::Device::cpu);
    EXPECT_FALSE(ranks.all_here());
    EXPECT_EQ(ranks.first(), own == 0);
    EXPECT_EQ(ranks.mine(2), own < 2 ? std::vector<int>{own} : std::vector<int>());
    EXPECT_EQ(ranks.any_here(1, 3), own > 0);
    EXPECT_TRUE(ranks.speaks(own));
    EXPECT_EQ(ranks.place(own), 0);
    EXPECT_EQ(ranks.bytes_here({4, 9, 2}), 9);
    EXPECT_EQ(ranks.on_this_machine(), 3);
    EXPECT_FALSE(ranks.word(own > 0)) << "rank 0 says it";
    EXPECT_EQ(ranks.most(own), 2);
    EXPECT_EQ(ranks.sum(own), 3);
  });
}

TEST(Ranks, EachRunsInItsScope) {
  const auto scopes = [](int) {
    tensor::Scope scope;
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    return scope;
  };
  for (const Ranks& ranks : {Ranks::threads(3, 10s), Ranks::meta(3, 10s)}) {
    std::mutex mutex;
    std::set<int> seen;
    ranks.run(scopes, {}, [&](comm::Communicator* world) {
      ASSERT_NE(world, nullptr);
      EXPECT_NE(tensor::current_scope().memory, nullptr);
      const std::lock_guard lock(mutex);
      seen.insert(world->rank());
    });
    EXPECT_EQ(seen, (std::set<int>{0, 1, 2}));
  }
  bool alone = false;
  Ranks::threads(1, 10s).run(scopes, {}, [&](comm::Communicator* world) { alone = !world; });
  EXPECT_TRUE(alone);
}

TEST(Ranks, OneRequestAtATimeOfProcesses) {
  on_processes(2, [](const Processes& processes) {
    const Ranks ranks = Ranks::processes(processes, 2, tensor::Device::cpu);
    {
      const ExclusiveRequest first(ranks, "a");
      EXPECT_THROW(ExclusiveRequest(ranks, "b"), Error);
    }
    EXPECT_NO_THROW(ExclusiveRequest(ranks, "b"));
  });
  const Ranks threads = Ranks::threads(2, 10s);
  const ExclusiveRequest first(threads, "a");
  EXPECT_NO_THROW(ExclusiveRequest(threads, "b"));
}

TEST(Ranks, WhatOneRankThrowsAllThrowByItsNameAndGoOn) {
  comm::threads::run(3, 60s, [](comm::Communicator& world) {
    auto joined = std::make_unique<Processes::State>();
    joined->rank = world.rank();
    joined->ranks = world.size();
    joined->world = &world;
    const Processes processes(std::move(joined));
    const Ranks ranks = Ranks::processes(processes, world.size(), tensor::Device::cpu);
    const auto said = [&](const std::function<void()>& work) -> std::string {
      try {
        ranks.all_or_none("decodes", work);
      } catch (const Error& e) {
        return fmt::format("{}: {}", static_cast<int>(e.code()), e.what());
      }
      return "";
    };
    const auto fails = [&](int first, ErrorCode code) {
      return [&world, first, code] {
        if (world.rank() >= first) fail(code, "spoilt on {}", world.rank());
      };
    };
    EXPECT_EQ(said([] {}), "");
    EXPECT_EQ(said(fails(1, ErrorCode::model)), "3: rank 1, which decodes: spoilt on 1");
    EXPECT_EQ(said(fails(2, ErrorCode::memory)), "6: rank 2, which decodes: spoilt on 2");
    EXPECT_EQ(said(fails(0, ErrorCode::model)), "3: spoilt on 0");
    EXPECT_EQ(said(fails(2, ErrorCode::cancelled)), "130: spoilt on 2");
    const std::string none = said([&] {
      if (world.rank() == 2) throw std::bad_alloc();
    });
    EXPECT_TRUE(none.starts_with("6: rank 2, which decodes: out of memory")) << none;
    EXPECT_EQ(said([] {}), "");
  });
}

// The others wait for a message of the failed rank.
TEST(Ranks, WithoutProcessesWorkIsSimplyDone) {
  int calls = 0;
  Ranks::threads(2, 10s).all_or_none("decodes", [&] { ++calls; });
  EXPECT_EQ(calls, 1);
  EXPECT_THROW(
      Ranks::threads(2, 10s).all_or_none("decodes", [] { fail(ErrorCode::model, "spoilt"); }),
      Error);
}

}  // namespace
}  // namespace tessera::cluster
