#include "fused/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "fused/processor.h"

namespace tessera::fused {
namespace {

// A scheduler of rank 0 with processors that only finish tasks.
struct Bench {
  explicit Bench(const Shape& s) : shape(s) {
    Carver measure(nullptr);
    make(measure);
    memory.resize(size_t(measure.bytes()) / 64 + 1);
    Carver carver(reinterpret_cast<std::byte*>(memory.data()));
    scheduler = make(carver);
  }
  Scheduler make(Carver& carver) {
    routed = {carver.take<int64_t>(int64_t{shape.layout.ranks} * shape.layout.experts),
              carver.take<Blocks>(int64_t{shape.layout.ranks} * shape.layout.most)};
    return Scheduler(shape, routed, carver);
  }
  // Tasks given to the processors until the end.
  std::vector<Task> run() {
    std::vector<Task> done;
    for (bool more = true; more;) {
      more = false;
      for (int p = 0; p < shape.processors; ++p) {
        Task task;
        const Processor one(scheduler.bell(p));
        if (!one.take(task, words)) continue;
        more = true;
        one.done(words);
        EXPECT_TRUE(scheduler.look(p, task, words));
        EXPECT_FALSE(scheduler.look(p, task, words)) << "it is finished once";
        done.push_back(task);
      }
      scheduler.hand_out(words);
    }
    return done;
  }

  struct alignas(64) Line {
    std::byte bytes[64]{};
  };
  Shape shape;
  std::vector<Line> memory;
  Routed routed;
  Scheduler scheduler;
  SharedWords words;
};

std::vector<TaskKind> kinds(const std::vector<Task>& tasks) {
  std::vector<TaskKind> all;
  for (const Task& task : tasks) all.push_back(task.kind);
  return all;
}

using enum TaskKind;

TEST(Scheduler, TheBoundShrinksToTheTasksThatThereAre) {
  Bench bench({Layout::fixed(2, 2, 6, 8, {4}), 0, 1, 2, 3, 1, 1});
  bench.routed.to(bench.shape.layout, 0)[1] = 5;  // two tiles of mine
  bench.routed.to(bench.shape.layout, 1)[0] = 1;  // an outgoing tile
  bench.scheduler.begin(1, true);
  // The gate, a shared block and its sum; for two ranks four tiles each: those that leave and
  // return, mine in five parts, the peer's in five parts and on their way back.
  EXPECT_EQ(bench.scheduler.bound(), 1 + 2 + 4 * 2 + 4 * 5 + 4 * 6);
  bench.scheduler.hand_out(bench.words);
  const auto first = kinds(bench.run());
  EXPECT_EQ(first, (std::vector{gate, dispatch, up, up, down, down, down, up, up, down, down, down,
                                shared}));
  EXPECT_EQ(bench.scheduler.bound(), 1 + 2 + 2 + 2 * 5 + 4 * 6);
  bench.scheduler.heard(1);
  EXPECT_EQ(bench.scheduler.bound(), 1 + 2 + 2 + 2 * 5 + 1 * 6);
  EXPECT_FALSE(bench.scheduler.done());
  bench.scheduler.arrived({up, 1, 0, 0, 3});
  bench.scheduler.hand_out(bench.words);
  EXPECT_EQ(kinds(bench.run()), (std::vector{up, up, down, down, down, give_back}));
  EXPECT_FALSE(bench.scheduler.done()) << "my tile is away";
  bench.scheduler.returned({collect, 1, 0, 0, 1});
  bench.scheduler.hand_out(bench.words);
  EXPECT_EQ(kinds(bench.run()), (std::vector{collect, combine}));
  EXPECT_TRUE(bench.scheduler.done());
  EXPECT_EQ(bench.scheduler.finished(), bench.scheduler.bound());
}

// Results for others must travel, mine need not.
TEST(Scheduler, TilesOfOthersAreComputedBeforeMine) {
  Bench bench({Layout::fixed(2, 1, 6, 8, {2}), 0, 1, 1, 1, 1, 1, 1});
  bench.routed.to(bench.shape.layout, 0)[0] = 6;
  bench.scheduler.begin(1, false);
  bench.scheduler.heard(2);
  bench.scheduler.arrived({up, 1, 0, 0, 2});
  bench.scheduler.arrived({up, 1, 0, 1, 2});
  bench.scheduler.hand_out(bench.words);
  std::vector<int> peers;
  for (const Task& t : bench.run())
    if (t.kind == down) peers.push_back(t.peer);
  EXPECT_EQ(peers, (std::vector{1, 1, 0, 0, 0}));
  EXPECT_TRUE(bench.scheduler.done());
}

// An expert's weights are read once, by a product of as many tiles as have rows.
TEST(Scheduler, SmallTilesOfAnExpertAreComputedAsOne) {
  Bench bench({Layout::fixed(4, 2, 8, 8, {8}), 0, 1, 2, 3, 1, 1, 2});
  bench.routed.to(bench.shape.layout, 0)[0] = 3;
  bench.routed.to(bench.shape.layout, 0)[1] = 1;
  bench.scheduler.begin(1, false);
  for (int peer = 1; peer < 4; ++peer) bench.scheduler.heard(1);
  bench.scheduler.arrived({up, 1, 1, 0, 6});
  for (int peer = 2; peer < 4; ++peer) bench.scheduler.arrived({up, peer, 0, 0, 3});
  bench.scheduler.hand_out(bench.words);
  std::vector<std::array<int, 3>> products;  // expert, rows, part
  std::vector<int> returned;
  for (const Task& t : bench.run()) {
    if (t.kind == down) products.push_back({t.expert, t.rows, t.part});
    if (t.kind == give_back) returned.push_back(t.peer);
  }
  // Work present before the end of the gate, in parts; for the first expert 3 + 3 rows together,
  // because 3 more exceed the limit.
  EXPECT_EQ(products, (std::vector<std::array<int, 3>>{{1, 6, 0},
                                                       {1, 6, 1},
                                                       {1, 6, 2},
                                                       {0, 6, 0},
                                                       {0, 3, 0},
                                                       {0, 3, 1},
                                                       {0, 3, 2},
                                                       {1, 1, 0},
                                                       {1, 1, 1},
                                                       {1, 1, 2}}));
  EXPECT_EQ(returned, (std::vector{1, 2, 3}));
  EXPECT_TRUE(bench.scheduler.done());
  EXPECT_EQ(bench.scheduler.finished(), bench.scheduler.bound());
}

// Without a split of products: a quarter of a tile or less joins, so no result waits long for
// others.
TEST(Scheduler, FewRowsAreComputedWithAFullTile) {
  for (const int parts : {1, 2}) {
    Bench bench({Layout::fixed(2, 1, 40, 8, {8}), 0, 1, parts, 1, 2, 1, 1});
    bench.routed.to(bench.shape.layout, 0)[0] = 9;
    bench.scheduler.begin(1, false);
    bench.scheduler.hand_out(bench.words);
    std::vector<int> products;
    const auto run = [&] {
      for (const Task& t : bench.run())
        if (t.kind == down) products.push_back(t.rows);
    };
    run();
    bench.scheduler.heard(3);
    bench.scheduler.arrived({up, 1, 0, 0, 8});
    bench.scheduler.arrived({up, 1, 0, 1, 8});
    bench.scheduler.arrived({up, 1, 0, 2, 3});
    bench.scheduler.hand_out(bench.words);
    run();
    EXPECT_EQ(products, (parts == 1 ? std::vector{9, 8, 8, 3} : std::vector{8, 1, 8, 8, 3}));
    EXPECT_TRUE(bench.scheduler.done());
    EXPECT_EQ(bench.scheduler.finished(), bench.scheduler.bound());
    for (const int64_t rows : {0, 1, 6, 8, 10, 11, 12})
      EXPECT_LE(rows + bench.shape.room(rows), std::max(rows, bench.shape.slot_rows()));
  }
}

TEST(TaskQueue, GivesWhatFitsAnExpertAndKeepsTheOrderOfOthers) {
  std::vector<Task> room(4);
  Carver carver(reinterpret_cast<std::byte*>(room.data()));
  TaskQueue queue(carver, 4);
  Task task;
  for (int turn = 0; turn < 3; ++turn) {  // around the end of the room
    for (const auto& [expert, rows] : {std::pair{0, 5}, {1, 9}, {1, 4}, {2, 1}})
      queue.push({.expert = expert, .rows = rows});
    EXPECT_FALSE(queue.take(3, 9, task));
    EXPECT_FALSE(queue.take(1, 3, task));
    ASSERT_TRUE(queue.take(1, 8, task));
    EXPECT_EQ(task.rows, 4);
    for (const int rows : {5, 9, 1}) EXPECT_EQ(queue.pop().rows, rows);
    EXPECT_TRUE(queue.empty());
    queue.push({});
    (void)queue.pop();
  }
}

// Rows in flight to a rank never exceed a run: a tile leaves when the results of its place's former
// tile were collected, in any order of return.
TEST(Scheduler, ATileLeavesWhenItsPlaceIsFree) {
  Bench bench({Layout::dropless(2, 2, 9, 8, {2}, 2), 0, 1, 1, 1, 1, 1, 2});
  bench.routed.to(bench.shape.layout, 1)[0] = 3;  // two tiles for the first expert
  bench.routed.to(bench.shape.layout, 1)[1] = 6;  // three for the second
  bench.scheduler.begin(1, false);
  bench.scheduler.heard(0);
  bench.scheduler.hand_out(bench.words);
  const auto sent = [&] {
    std::vector<std::array<int, 3>> tiles;
    for (const Task& t : bench.run())
      if (t.kind == dispatch) tiles.push_back({t.expert, t.index, t.rows});
    return tiles;
  };
  using Tiles = std::vector<std::array<int, 3>>;
  EXPECT_EQ(sent(), (Tiles{{0, 0, 2}, {0, 1, 1}}));
  const auto back = [&](const Task& tile) {
    bench.scheduler.returned(tile);
    bench.scheduler.hand_out(bench.words);
    return sent();
  };
  EXPECT_EQ(back({collect, 1, 0, 1, 1}), (Tiles{{1, 1, 2}})) << "of the second place first";
  EXPECT_EQ(back({collect, 1, 0, 0, 2}), (Tiles{{1, 0, 2}}));
  EXPECT_EQ(back({collect, 1, 1, 1, 2}), Tiles{}) << "there is no sixth";
  EXPECT_EQ(back({collect, 1, 1, 0, 2}), (Tiles{{1, 2, 2}}));
  EXPECT_FALSE(bench.scheduler.done());
  EXPECT_EQ(back({collect, 1, 1, 2, 2}), Tiles{});
  EXPECT_TRUE(bench.scheduler.done());
}

TEST(Scheduler, WhoWasNotHeardIsWaitedForThoughNothingComes) {
  Bench bench({Layout::dropless(3, 1, 0, 8, {4}), 0, 1, 1, 1, 1, 0});
  bench.scheduler.begin(0, false);
  bench.scheduler.hand_out(bench.words);
  EXPECT_EQ(kinds(bench.run()), (std::vector{gate}));
  EXPECT_EQ(bench.scheduler.bound(), 1);
  EXPECT_FALSE(bench.scheduler.done());
  bench.scheduler.heard(0);
  EXPECT_FALSE(bench.scheduler.done());
  bench.scheduler.heard(0);
  EXPECT_TRUE(bench.scheduler.done());
}

// The number of slots is the maximum of inner activations.
TEST(Scheduler, NoMoreTilesAreUnderWayThanThereAreSlots) {
  for (int slots = 1; slots <= 3; ++slots) {
    Bench bench({Layout::fixed(1, 1, 20, 8, {2}), 0, 4, 2, 2, slots, 1});
    bench.routed.to(bench.shape.layout, 0)[0] = 20;
    bench.scheduler.begin(1, false);
    bench.scheduler.hand_out(bench.words);
    std::map<int, std::pair<int, int>> open;  // by slot: tile, finished parts
    int tiles = 0;
    for (const Task& task : bench.run()) {
      if (task.kind != up && task.kind != down) continue;
      EXPECT_LT(task.slot, slots);
      auto& [tile, parts] = open[task.slot];
      if (parts == 0) tile = task.index;
      EXPECT_EQ(tile, task.index) << "a slot holds one tile";
      EXPECT_EQ(task.kind, parts < 2 ? up : down) << "all of the first product, then the second";
      if (++parts < 4) continue;
      parts = 0;
      ++tiles;
    }
    EXPECT_EQ(tiles, 10);
    EXPECT_TRUE(bench.scheduler.done());
  }
}

TEST(Scheduler, NobodyIsIdleWhileATaskIsReady) {
  Bench bench({Layout::fixed(1, 1, 8, 8, {2}), 0, 3, 1, 1, 4, 4});
  bench.routed.to(bench.shape.layout, 0)[0] = 8;
  for (int32_t i = 0; i < 4; ++i) bench.routed.waits[i] = {i, i};
  bench.scheduler.begin(4, true);
  bench.scheduler.hand_out(bench.words);
  Task task;
  for (int p = 0; p < 3; ++p) {
    ASSERT_TRUE(Processor(bench.scheduler.bell(p)).take(task, bench.words)) << p;
    EXPECT_EQ(task.kind, p == 0 ? gate : shared) << "which waits for nothing";
  }
  EXPECT_EQ(bench.run().size(), size_t(1 + 4 + 4 + 4 + 4));
  EXPECT_TRUE(bench.scheduler.done());
}

TEST(TaskQueue, IsFirstInFirstOut) {
  std::vector<Task> room(3);
  Carver carver(reinterpret_cast<std::byte*>(room.data()));
  TaskQueue queue(carver, 3);
  int32_t in = 0, out = 0;
  for (int round = 0; round < 5; ++round) {
    while (queue.count < 3) queue.push({.index = in++});
    for (int i = 0; i < 2; ++i) EXPECT_EQ(queue.pop().index, out++);
  }
  EXPECT_EQ(queue.pop().index, out);
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(carver.bytes(), int64_t(3 * sizeof(Task)));
}

}  // namespace
}  // namespace tessera::fused
