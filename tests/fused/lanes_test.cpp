// Layers that stay under way while the next ones begin: every order of two ranks' work.
#include <gtest/gtest.h>

#include <random>

#include "comm/threads/launch.h"
#include "fused/explorer.h"
#include "fused/heap_conformance.h"
#include "fused/heap_lane.h"
#include "fused/laned_world.h"
#include "fused/open_heap.h"

namespace tessera::fused {
namespace {

using namespace std::chrono_literals;

const std::vector<std::vector<int64_t>> kCross{{0, 1}, {1, 0}}, kToOne{{1, 0}, {1, 0}},
    kHome{{1, 0}, {0, 1}}, kNothing{{0, 0}, {0, 0}}, kAway{{0, 1}, {0, 0}};

TEST(Lanes, NoOrderOfConsecutiveStepsWithALayerUnderWayFails) {
  for (const int lag : {1, 2})
    for (const auto& [name, rows] : {std::pair{"cross, to one", std::vector{kCross, kToOne}},
                                     {"to one, nothing, cross", {kToOne, kNothing, kCross}},
                                     {"away, away, away, away", {kAway, kAway, kAway, kAway}}}) {
      LanedWorld world(rows, lag);
      const Explored found = explore(world);
      EXPECT_EQ(found.failure, "") << name << ", lag " << lag;
      EXPECT_EQ(found.ends, 1) << name << ": every order ends alike";
      EXPECT_GT(found.states, 900) << name;
      std::printf("[   states ] %s, lag %d: %lld\n", name, lag,
                  static_cast<long long>(found.states));
    }
}

TEST(Lanes, AFaultInAnyOfTheirRulesIsFound) {
  for (const auto& [fault, lag, says] :
       {std::tuple{LaneFault::read_before_its_flag, 1, "a result that is read is not the token's"},
        {LaneFault::lane_taken_early, 2, "a result that is read is not the token's"},
        {LaneFault::left_before_the_others, 1, "nobody can go on"}}) {
    LanedWorld world({kNothing, kAway, kToOne, kNothing}, lag, fault);
    const Explored found = explore(world);
    EXPECT_NE(found.failure, "") << int(fault);
    EXPECT_NE(found.failure.find(says), std::string::npos) << int(fault) << found.failure;
    std::printf("[    fault ] %d after %lld states: %s\n", int(fault),
                static_cast<long long>(found.states), found.failure.c_str());
  }
}

// Random orders, in worlds with too many for a search.
TEST(Lanes, RandomOrdersOfMoreRanksAndStepsEndWell) {
  std::mt19937 random(7);
  const auto below = [&](int n) { return int(random() % uint32_t(n)); };
  for (int trial = 0; trial < 60; ++trial) {
    const auto ranks = size_t(2 + below(3));
    std::vector<std::vector<std::vector<int64_t>>> rows(size_t(3 + below(5)));
    for (auto& layer : rows)
      for (size_t from = 0; from < ranks; ++from) {
        layer.emplace_back(ranks);
        for (int64_t& to : layer.back()) to = below(4);
      }
    LanedWorld world(rows, 1 + below(2));
    for (int64_t tick = 0; !world.over(); ++tick) {
      world.act(below(world.actions()));
      ASSERT_EQ(world.failure(), "") << trial;
      if (tick % 5000 != 0) continue;
      bool moved = false;
      for (int i = 0; i < world.actions(); ++i) moved |= world.act(i);
      ASSERT_TRUE(moved || world.over()) << trial << ": nobody can go on";
    }
  }
}

TEST(HeapLane, EachPassesTheSuiteBesideTheOther) {
  const HeapSize size{2 * kHeapBytes, kHeapBytes, kHeapBytes, {}, 2};
  for (const HeapCase& one : heap_cases())
    comm::threads::run(3, 60s, [&](comm::Communicator& world) {
      const auto heap = open_heap(world, size, tensor::Device::cpu);
      for (int lane = 0; lane < 2; ++lane) {
        HeapLane part(*heap, size.begin(lane));
        EXPECT_EQ(part.memory(), heap->memory() + lane * kHeapBytes);
        EXPECT_NO_THROW(one.body(part)) << one.name << " in lane " << lane;
      }
    });
}

TEST(HeapLane, CountsAndFlagsOfEachBeginAsZero) {
  const Layout layout = Layout::dropless(2, 3, 20, 40, {4}, 2);
  const HeapSize size = heap_of(layout, 3);
  EXPECT_EQ(size.begin(1), whole_lines(layout.bytes()));
  EXPECT_EQ(size.bytes, 3 * size.begin(1));
  EXPECT_EQ(heap_of(layout).bytes, layout.bytes());
  comm::threads::run(2, 60s, [&](comm::Communicator& world) {
    const auto heap = open_heap(world, size, tensor::Device::cpu);
    for (int lane = 0; lane < 3; ++lane) {
      const std::byte* const begin = heap->memory() + size.begin(lane);
      for (int64_t i = 0; i < layout.count_region(); ++i) EXPECT_EQ(begin[i], std::byte{0});
      for (int64_t i = layout.bytes() - 8 * layout.flags(); i < layout.bytes(); ++i)
        EXPECT_EQ(begin[i], std::byte{0});
    }
    comm::barrier(world);
  });
}

}  // namespace
}  // namespace tessera::fused
