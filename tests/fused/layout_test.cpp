#include "fused/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <vector>

namespace tessera::fused {
namespace {

constexpr Round kRounds[] = {Round::dispatch, Round::combine};
constexpr Side kSides[] = {Side::outgoing, Side::incoming};

// FlashDMoE's table of Size(L), in MiB: H 1024 in f32, tiles of 128 rows.
TEST(FixedLayout, HasTheSizesOfThePaper) {
  struct Line {
    int64_t tokens;
    int experts;
    int64_t mib;
  };
  for (const Line& line : {Line{4096, 16, 64},
                           {4096, 32, 64},
                           {4096, 64, 128},
                           {4096, 128, 256},
                           {8192, 16, 128},
                           {8192, 32, 128},
                           {8192, 64, 128},
                           {8192, 128, 256},
                           {16384, 16, 256},
                           {16384, 32, 256},
                           {16384, 64, 256},
                           {16384, 128, 256}})
    for (const int ranks : {1, 2, 8}) {
      const Layout layout =
          Layout::fixed(ranks, line.experts / ranks, line.tokens / line.experts, 1024 * 4, {128});
      EXPECT_EQ(layout.row_region(), line.mib << 20) << line.tokens << " " << line.experts;
      EXPECT_EQ(layout.row_region(),
                4 * ranks * layout.experts * std::max<int64_t>(128, layout.cell) * 4096);
    }
}

TEST(FixedLayout, ACellHoldsItsCapacityInWholeTiles) {
  for (int64_t tile : {1, 16, 32, 128})
    for (int64_t c = 0; c <= 512; ++c) {
      const Layout layout = Layout::fixed(1, 3, c, 4, {tile});
      EXPECT_EQ(layout.cell % tile, 0);
      EXPECT_GE(layout.cell, std::max<int64_t>(c, 1));
      EXPECT_LT(layout.cell, std::max<int64_t>(c, 1) + tile);
      EXPECT_EQ(layout.run, 3 * layout.cell);
    }
}

// In every layout up to 8 ranks, 16 experts and a capacity of 512, each place has its own bytes,
// and no bytes are left over.
TEST(FixedLayout, PlacesFillTheBufferAndNeverMeet) {
  constexpr int64_t kTile = 32, kRowBytes = 24;
  int64_t places = 0;
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (int experts = 1; experts <= 16; ++experts)
      for (int64_t c = kTile; c <= 512; c += kTile) {  // others are rounded to these
        const Layout layout = Layout::fixed(ranks, experts, c, kRowBytes, {kTile});
        int64_t next = layout.count_region(), wrong = 0;
        for (int p = 0; p < ranks; ++p)
          for (const Round round : kRounds)
            for (const Side side : kSides)
              for (int e = 0; e < experts; ++e)
                for (int64_t row = 0; row < c; ++row, next += kRowBytes)
                  wrong +=
                      layout.offset({p, round, side, e, row}, layout.first_row(nullptr, e)) != next;
        ASSERT_EQ(wrong, 0) << ranks << " " << experts << " " << c;
        ASSERT_EQ(next - layout.count_region(), layout.row_region());
        places += layout.row_region() / kRowBytes;
      }
  EXPECT_EQ(places, int64_t{4} * 36 * 136 * kTile * 136);
}

TEST(FixedLayout, EveryTileThatMayArriveHasAFlagBehindTheRows) {
  for (const auto& [ranks, experts, c] :
       {std::array<int64_t, 3>{1, 1, 1}, {3, 5, 100}, {8, 2, 33}}) {
    const Layout layout = Layout::fixed(int(ranks), int(experts), c, 20, {32});
    std::set<int64_t> flags;
    for (int p = 0; p < layout.ranks; ++p)
      for (const Round round : kRounds)
        for (int e = 0; e < layout.experts; ++e)
          for (int64_t row = 0; row < layout.cell; ++row) {
            const int64_t at = layout.flag_offset({p, round, Side::incoming, e, row},
                                                  layout.first_row(nullptr, e));
            EXPECT_EQ(at % 8, 0);
            EXPECT_GE(at, layout.count_region() + layout.row_region());
            EXPECT_LE(at + 8, layout.bytes());
            if (row % 32 == 0) {
              EXPECT_TRUE(flags.insert(at).second);
            }
            EXPECT_TRUE(flags.contains(at));
          }
    EXPECT_EQ(static_cast<int64_t>(flags.size()), layout.flags());
  }
}

TEST(ValidWrite, NoTwoRanksWriteOnePlaceAndEachHasAWriter) {
  constexpr int kRanks = 8;
  for (int target = 0; target < kRanks; ++target)
    for (int peer = 0; peer < kRanks; ++peer)
      for (const Side side : kSides) {
        int writers = 0;
        for (int writer = 0; writer < kRanks; ++writer)
          writers += valid_write(writer, target, {peer, Round::dispatch, side, 0, 0});
        EXPECT_EQ(writers, 1);
      }
  EXPECT_FALSE(valid_write(1, 2, {1, Round::combine, Side::outgoing, 0, 0})) << "stays at home";
  EXPECT_FALSE(valid_write(1, 2, {3, Round::combine, Side::incoming, 0, 0})) << "another's";
  EXPECT_TRUE(valid_write(2, 2, {2, Round::combine, Side::incoming, 0, 0})) << "rows of my own";
}

TEST(RowTiles, TheLastTileIsWhatIsLeft) {
  for (int64_t tile : {1, 7, 128})
    for (int64_t rows = 0; rows < 300; ++rows) {
      const RowTiles tiles{tile};
      int64_t sum = 0;
      for (int64_t i = 0; i < tiles.count(rows); ++i) {
        EXPECT_GT(tiles.rows_of(i, rows), 0);
        sum += tiles.rows_of(i, rows);
      }
      EXPECT_EQ(sum, rows);
      EXPECT_EQ(tiles.rows_of(tiles.count(rows), rows), 0);
    }
}

// The largest number of rows in whole tiles for `assignments` assignments, over all possible
// routings.
int64_t most_rows(int64_t assignments, int experts, const RowTiles& tiles) {
  if (experts == 1) return tiles.rounded(assignments);
  int64_t most = 0;
  for (int64_t first = 0; first <= assignments; ++first)
    most =
        std::max(most, tiles.rounded(first) + most_rows(assignments - first, experts - 1, tiles));
  return most;
}

TEST(DroplessLayout, ARunHoldsWhateverIsRoutedAndNoRowMore) {
  for (int64_t tile : {1, 3, 4})
    for (int experts = 1; experts <= 4; ++experts)
      for (int64_t assignments = 0; assignments <= 14; ++assignments) {
        const Layout layout = Layout::dropless(2, experts, assignments, 8, {tile});
        EXPECT_EQ(layout.run, most_rows(assignments, experts, layout.tiles))
            << tile << " " << experts << " " << assignments;
      }
}

TEST(DroplessLayout, PlacesNeverMeetHoweverRowsAreRouted) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const int ranks = 1 + int(random() % 4), experts = 1 + int(random() % 5);
    const int64_t assignments = random() % 60, row_bytes = 12;
    const Layout layout =
        Layout::dropless(ranks, experts, assignments, row_bytes, {1 + int64_t(random() % 9)});
    std::set<int64_t> taken, flags;
    for (const uint64_t epoch : {6, 7})
      for (int p = 0; p < ranks; ++p)
        for (int e = 0; e < experts; ++e)
          EXPECT_TRUE(taken.insert(layout.count_offset(epoch, p, e)).second);
    EXPECT_EQ(layout.count_offset(8, ranks - 1, 0), layout.count_offset(6, ranks - 1, 0));
    EXPECT_EQ(*taken.rbegin() + 8 <= layout.count_region(), true);
    size_t places = taken.size();
    for (int p = 0; p < ranks; ++p)
      for (const Round round : kRounds)
        for (const Side side : kSides) {
          std::vector<int64_t> counts(size_t(experts), 0);
          for (int64_t a = 0; a < assignments; ++a) ++counts[random() % counts.size()];
          for (int e = 0; e < experts; ++e) {
            const int64_t first = layout.first_row(counts.data(), e);
            EXPECT_EQ(first % layout.tiles.tile, 0);
            for (int64_t row = 0; row < counts[size_t(e)]; ++row, ++places) {
              const Place place{p, round, side, e, row};
              const int64_t at = layout.offset(place, first);
              EXPECT_EQ((at - layout.count_region()) % row_bytes, 0);
              EXPECT_LE(at + row_bytes, layout.count_region() + layout.row_region());
              EXPECT_TRUE(taken.insert(at).second);
              if (side == Side::outgoing) continue;
              const int64_t flag = layout.flag_offset(place, first);
              EXPECT_GE(flag, layout.count_region() + layout.row_region());
              EXPECT_LE(flag + 8, layout.bytes());
              EXPECT_EQ(flags.insert(flag).second, row % layout.tiles.tile == 0);
            }
          }
        }
    EXPECT_EQ(taken.size(), places);
  }
}

// For any routing, the bytes are those of the window.
TEST(DroplessLayout, AWindowBoundsWhatIsOnItsWayToOneRank) {
  for (const int64_t assignments : {0, 5, 100, 100000}) {
    const Layout all = Layout::dropless(4, 6, assignments, 256, {16}),
                 few = Layout::dropless(4, 6, assignments, 256, {16}, 8);
    EXPECT_EQ(few.most, all.most);
    EXPECT_EQ(few.run_tiles(), std::min<int64_t>(8, all.most));
    EXPECT_LE(few.row_region(), 4 * 4 * 8 * 16 * 256);
    for (int64_t row = 0; row < all.run; row += 7) {
      const Place place{2, Round::combine, Side::incoming, 0, row};
      EXPECT_EQ(few.offset(place, 0),
                few.offset({2, Round::combine, Side::incoming, 0, row % few.run}, 0));
      EXPECT_EQ(few.number(place, 0), row / 16) << "which tells tiles of a place apart";
    }
  }
}

TEST(DroplessLayout, ItsBytesAreKnownBeforeAnythingIsRouted) {
  constexpr Layout kLayout = Layout::dropless(8, 16, 4096 * 2, 2048 * 2, {128});
  static_assert(kLayout.run == ((8192 - 16) / 128 + 16) * 128);
  static_assert(kLayout.row_region() == 4 * 8 * kLayout.run * 4096);
  static_assert(kLayout.bytes() ==
                2 * 8 * 8 * 16 + kLayout.row_region() + 8 * 2 * 8 * (kLayout.run / 128));
  EXPECT_EQ(kLayout.count_region(), 2048);
}

}  // namespace
}  // namespace tessera::fused
