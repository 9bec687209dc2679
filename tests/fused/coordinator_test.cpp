// The protocol alone: every order of two ranks' work, and random orders of more.
#include "fused/coordinator.h"

#include <gtest/gtest.h>

#include <random>

#include "fused/explorer.h"
#include "fused/protocol_world.h"

namespace tessera::fused {
namespace {

Explored explore(const Scenario& scenario, Fault fault = Fault::none) {
  ProtocolWorld world(scenario, fault);
  return explore(world);
}

// Rows of two epochs: [from][to].
Scenario two_ranks(std::vector<std::vector<std::vector<int64_t>>> rows) {
  Scenario scenario;
  scenario.rows = std::move(rows);
  return scenario;
}
const std::vector<std::vector<int64_t>> kAll{{1, 1}, {1, 1}}, kCross{{0, 1}, {1, 0}},
    kNothing{{0, 0}, {0, 0}}, kToOne{{1, 0}, {1, 0}}, kHome{{1, 0}, {0, 1}};

TEST(Exploration, NoOrderOfTwoRanksTwoProcessorsAndTwoEpochsFails) {
  for (const auto& [name, first, second] : {std::tuple{"all, all", kAll, kAll},
                                            {"cross, all", kCross, kAll},
                                            {"nothing, all", kNothing, kAll},
                                            {"to one, cross", kToOne, kCross},
                                            {"home, to one", kHome, kToOne},
                                            {"nothing, nothing", kNothing, kNothing}}) {
    const Explored found = explore(two_ranks({first, second}));
    EXPECT_EQ(found.failure, "") << name;
    EXPECT_EQ(found.ends, 1) << name << ": every order ends alike";
    EXPECT_GT(found.states, 900) << name;
    std::printf("[   states ] %s: %lld\n", name, static_cast<long long>(found.states));
  }
}

TEST(Exploration, NorWithoutACapacityInPartsAndSlotsOrWithASharedExpert) {
  Scenario parts = two_ranks({kCross, kCross}), slots = two_ranks({kCross, kToOne});
  parts.capacity = slots.capacity = 0;
  parts.up_parts = 2;
  slots.slots = 2;
  slots.shared = true;
  Scenario together = two_ranks({kAll, kToOne});  // both ranks' rows form a single product
  together.capacity = together.tile = together.up_parts = 2;
  together.processors = 1;
  for (const Scenario& scenario : {parts, slots, together}) {
    const Explored found = explore(scenario);
    EXPECT_EQ(found.failure, "");
    EXPECT_EQ(found.ends, 1);
    std::printf("[   states ] %lld\n", static_cast<long long>(found.states));
  }
}

// Three tiles alternate between places of a run.
Scenario window_of(int64_t window) {
  Scenario scenario = two_ranks({{{0, 3}, {0, 0}}, {{0, 2}, {1, 0}}});
  scenario.capacity = 0;
  scenario.window = window;
  scenario.processors = 1;
  return scenario;
}

TEST(Exploration, NorWhereTilesTakeTurnsAtThePlacesOfARun) {
  for (const int64_t window : {1, 2}) {
    const Explored found = explore(window_of(window));
    EXPECT_EQ(found.failure, "") << window;
    EXPECT_EQ(found.ends, 1) << window;
    EXPECT_GT(found.states, 900) << window;
    std::printf("[   states ] window of %d: %lld\n", int(window),
                static_cast<long long>(found.states));
  }
}

TEST(Exploration, AFaultInAnyOfItsRulesIsFound) {
  const Scenario all = two_ranks({kAll, kAll}), quiet = two_ranks({kNothing, kAll});
  Scenario longer = two_ranks({kNothing, kAll, kAll});
  longer.epochs = 3;
  for (const auto& [fault, scenario, says] :
       {std::tuple{Fault::rows_not_waited_for, all, "a row to compute"},
        {Fault::results_not_waited_for, all, "a result that comes back"},
        {Fault::counts_not_waited_for, all, "past the bound"},
        {Fault::word_before_rows, all, "a row to compute"},
        {Fault::bell_before_work, all, "a result that is summed"},
        {Fault::any_epoch_of_flags, all, "a result that comes back"},
        {Fault::any_epoch_of_counts, longer, ""},
        {Fault::one_set_of_counts, quiet, "nobody can go on"},
        {Fault::bell_not_cleared, all, "sent twice at once"},
        {Fault::bell_cleared_at_once, all, "a result that is summed"},
        {Fault::any_tile_of_flags, window_of(1), "a row to compute"}}) {
    const Explored found = explore(scenario, fault);
    EXPECT_NE(found.failure, "") << int(fault);
    EXPECT_NE(found.failure.find(says), std::string::npos) << int(fault) << found.failure;
    std::printf("[    fault ] %d after %lld states: %s\n", int(fault),
                static_cast<long long>(found.states), found.failure.c_str());
  }
}

// Words from a peer are checked before their use as sizes.
TEST(Coordinator, CountsThatCannotBeAreRefusedAndNothingFollows) {
  const Layout dropless = Layout::dropless(2, 3, 10, 8, {4}, 2),
               fixed = Layout::fixed(2, 3, 5, 8, {4});
  struct Case {
    const Layout& layout;
    int experts;  // experts of this rank
    std::vector<int64_t> rows;
    bool refused;
  };
  for (const Case& c : {Case{dropless, 3, {10, 0, 0}, false},
                        {dropless, 3, {2, 4, 4}, false},
                        {dropless, 3, {17, 0, 0}, true},
                        {dropless, 3, {12, 4, 1}, true},
                        {dropless, 3, {0xffffffff, 0, 0}, true},
                        {dropless, 3, {0, 0, 0x80000000}, true},
                        {dropless, 2, {1, 1, 0}, false},
                        {dropless, 2, {0, 0, 1}, true},
                        {dropless, 0, {1, 0, 0}, true},
                        {fixed, 3, {5, 8, 1}, false},
                        {fixed, 3, {0, 9, 0}, true}}) {
    const Shape shape{c.layout, 0, 1, 1, 1, 1, 1, c.experts};
    struct alignas(64) Line {
      std::byte bytes[64]{};
    };
    std::vector<Line> buffer(size_t(c.layout.bytes()) / 64 + 1),
        memory(size_t(Coordinator::bytes(shape)) / 64 + 1);
    auto* const begin = buffer[0].bytes;
    Coordinator coordinator(shape, begin, memory[0].bytes);
    SharedWords words;
    coordinator.begin(1, false, words);
    const int64_t bound = coordinator.scheduler().bound();
    const Dispatcher peer(c.layout, 1);
    for (int e = 0; e < 3; ++e) {
      const Transfer t = peer.count(0, e, c.rows[size_t(e)], 1);
      std::memcpy(begin + t.word, &t.value, 8);
    }
    EXPECT_TRUE(coordinator.poll(words));
    EXPECT_EQ(coordinator.refused().kind == Arrival::Kind::refused, c.refused) << c.rows[0];
    EXPECT_EQ(coordinator.refused().peer, c.refused ? 1 : 0);
    EXPECT_EQ(coordinator.scheduler().bound() == bound, c.refused) << "nothing follows";
    EXPECT_FALSE(coordinator.poll(words)) << "once";
  }
}

// Larger worlds, a random order each: some actors fall behind for long.
TEST(RandomOrders, OfAnyNumberOfRanksProcessorsAndExpertsEndWell) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return int(random() % uint32_t(n)); };
  for (int trial = 0; trial < 200; ++trial) {
    Scenario s;
    s.ranks = 1 + below(5);
    s.processors = 1 + below(4);
    s.epochs = 1 + below(4);
    s.experts = 1 + below(3);
    s.tile = 1 + below(3);
    s.up_parts = 1 + below(3);
    s.down_parts = 1 + below(3);
    s.slots = 1 + below(3);
    s.shared = below(2) == 1;
    const int most = below(3) == 0 ? 1 : 8;
    s.capacity = below(2) == 0 ? 0 : most;
    s.window = below(4);
    for (int e = 0; e < s.epochs; ++e) {
      auto& epoch = s.rows.emplace_back(size_t(s.ranks));
      for (auto& from : epoch)
        for (int i = 0; i < s.ranks * s.experts; ++i)
          from.push_back(below(3) == 0 ? 0 : below(most + 1));
    }
    ProtocolWorld world(s, Fault::none);
    std::vector<int> slow(size_t(world.actions()));
    for (int& one : slow) one = below(4) == 0 ? 1 + below(50) : 0;
    for (int tick = 0; !world.over(); ++tick) {
      const int action = below(world.actions());
      const int every = slow[size_t(action)];
      if (every == 0 || tick / 100 % every == 0) world.act(action);
      ASSERT_EQ(world.failure(), "") << trial;
      if (tick % 5000 != 0) continue;
      bool moved = false;
      for (int i = 0; i < world.actions(); ++i) moved |= world.act(i);
      ASSERT_TRUE(moved || world.over()) << trial << ": nobody can go on";
    }
    EXPECT_EQ(world.payload(), world.crossing()) << trial << ": only rows travel, each twice";
  }
}

}  // namespace
}  // namespace tessera::fused
