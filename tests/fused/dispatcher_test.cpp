#include "fused/dispatcher.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace tessera::fused {
namespace {

// Every transfer of every rank, for any routing: to a place its sender may write, no two to the
// same byte or word, from the sender's own bytes, and without the padding of a tile.
TEST(Dispatcher, TransfersAreValidWritesThatNeverMeet) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 100; ++trial) {
    const int ranks = 1 + int(random() % 4), experts = 1 + int(random() % 3);
    const RowTiles tiles{1 + int64_t(random() % 5)};
    constexpr int64_t kBytes = 24;
    std::vector<std::vector<int64_t>> rows(static_cast<size_t>(ranks * ranks));
    for (auto& run : rows)
      for (int e = 0; e < experts; ++e) run.push_back(int64_t(random() % 12));
    const Layout layout = trial % 2 ? Layout::fixed(ranks, experts, 12, kBytes, tiles)
                                    : Layout::dropless(ranks, experts, 12 * experts, kBytes, tiles);
    std::set<std::pair<int, int64_t>> written, left;
    const auto once = [](auto& seen, int rank, int64_t at, int64_t bytes) {
      for (int64_t i = 0; i < bytes; i += 8) EXPECT_TRUE(seen.insert({rank, at + i}).second);
    };
    int64_t sent = 0, wanted = 0;
    for (int me = 0; me < ranks; ++me) {
      const Dispatcher dispatcher(layout, me);
      for (int peer = 0; peer < ranks; ++peer)
        for (const TaskKind kind : {TaskKind::dispatch, TaskKind::give_back}) {
          const auto& counts =
              rows[size_t(kind == TaskKind::dispatch ? me * ranks + peer : peer * ranks + me)];
          for (int e = 0; e < experts; ++e) {
            wanted += counts[size_t(e)];
            for (int64_t i = 0; i < tiles.count(counts[size_t(e)]); ++i) {
              const Task task{kind, peer, e, int32_t(i),
                              int32_t(tiles.rows_of(i, counts[size_t(e)]))};
              const Transfer t = dispatcher.tile(task, counts.data(), 7);
              EXPECT_TRUE(valid_write(me, t.to, dispatcher.place(task, Side::incoming, me)));
              EXPECT_TRUE(valid_write(me, me, dispatcher.place(task, Side::outgoing, peer)));
              EXPECT_EQ(t.from, dispatcher.offset(task, Side::outgoing, counts.data()));
              EXPECT_EQ(t.value, (uint64_t{7} << 32) + 1) << "nothing shares its place";
              once(written, t.to, t.at, t.bytes);
              once(written, t.to, t.word, 8);
              once(left, me, t.from, t.bytes);
              EXPECT_LE(t.at + t.bytes, layout.count_region() + layout.row_region());
              sent += t.bytes / kBytes;
            }
          }
        }
    }
    EXPECT_EQ(sent, wanted) << "rows, and nothing else";
    for (const auto& place : left) EXPECT_FALSE(written.contains(place)) << "outgoing, incoming";
  }
}

TEST(Dispatcher, TilesThatShareAPlaceHaveWordsOfTheirOwn) {
  const Layout layout = Layout::dropless(2, 2, 20, 8, {2}, 3);
  const Dispatcher dispatcher(layout, 1);
  const std::vector<int64_t> counts{7, 13};  // four tiles and seven, at three places
  std::set<std::pair<int64_t, uint64_t>> words;
  for (int i = 0; i < 11; ++i) {
    const Task task{TaskKind::dispatch, 0, i < 4 ? 0 : 1, int32_t(i < 4 ? i : i - 4), 1};
    const Transfer t = dispatcher.tile(task, counts.data(), 7);
    EXPECT_EQ(t.word, layout.flag_offset(1, Round::dispatch, i % 3));
    EXPECT_EQ(t.at, layout.offset({1, Round::dispatch, Side::incoming, 0, i % 3 * 2}, 0));
    EXPECT_EQ(t.value, (uint64_t{7} << 32) + uint64_t(i) / 3 + 1);
    EXPECT_TRUE(words.insert({t.word, t.value}).second);
  }
}

TEST(Dispatcher, CountsSayHowManyAndWhen) {
  const Layout layout = Layout::fixed(3, 2, 4, 8, {2});
  const Dispatcher dispatcher(layout, 1);
  const Transfer t = dispatcher.count(2, 1, 9, (uint64_t{5} << 32) + 3);
  EXPECT_EQ(t.to, 2);
  EXPECT_EQ(t.bytes, 0);
  EXPECT_EQ(t.word, layout.count_offset(3, 1, 1));
  EXPECT_EQ(t.value >> 32, 3u) << "epochs go on behind 2^32";
  EXPECT_EQ(t.value & 0xffffffff, 9u);
}

}  // namespace
}  // namespace tessera::fused
