#include "comm/collectives.h"

#include <gtest/gtest.h>

#include "base/fail.h"
#include "comm/threads/launch.h"

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;
using tensor::DType;
using tensor::Tensor;

TEST(Collectives, AnExchangeTakesOneMessageForEachRank) {
  threads::run(2, 10s, [](Communicator& world) {
    EXPECT_THROW(all_to_all(world, {Tensor::zeros({1}, DType::u8)}, {"x", 0}), Error);
  });
}

TEST(Collectives, AMessageOfADryRunStandsForSeveral) {
  threads::run(3, 10s, [](Communicator& world) {
    const std::vector<int64_t> transfers{4, 0, 7};
    std::vector<int64_t> counts;
    all_to_all(world, std::vector<Tensor>(3, Tensor::zeros({1}, DType::u8)), {"x", 0}, transfers)
        .wait(&counts);
    const int64_t own = transfers[static_cast<size_t>(world.rank())];
    std::vector<int64_t> expected(3, own);
    expected[static_cast<size_t>(world.rank())] = 0;
    EXPECT_EQ(counts, expected);
    EXPECT_EQ(world.ledger().total().messages, 11 - own);
    EXPECT_EQ(world.ledger().total().bytes, 2);
  });
}

TEST(Collectives, WholeNumbersAreMergedExactlyOnEveryRank) {
  for (int ranks : {1, 2, 3})
    threads::run(ranks, 10s, [&](Communicator& world) {
      const int64_t large = int64_t{1} << 60;  // beyond doubles
      std::vector<int64_t> sums{world.rank() == 0 ? large + 1 : 1, -world.rank()}, most = sums;
      all_reduce(world, std::span(sums), {"votes", 0});
      all_reduce_max(world, std::span(most), {"votes", 0});
      EXPECT_EQ(sums, (std::vector<int64_t>{large + ranks, -ranks * (ranks - 1) / 2}));
      EXPECT_EQ(most, (std::vector<int64_t>{large + 1, 0}));
      all_reduce(world, std::span<int64_t>(), {"votes", 0});
    });
}

TEST(Collectives, OneRankDecidesForAll) {
  threads::run(3, 10s, [](Communicator& world) {
    for (bool word : {true, false})
      EXPECT_EQ(agreed(world, 1, world.rank() == 1 ? word : !word, {"go", 0}), word);
  });
}

TEST(Collectives, AllRanksHearTheErrorOfTheLowest) {
  threads::run(3, 10s, [](Communicator& world) {
    EXPECT_FALSE(first_error(world, [] {}, {"work", 0}));
    const auto error = first_error(world,
                                   [&] {
                                     if (world.rank() > 0)
                                       fail(ErrorCode::memory, "rank {}", world.rank());
                                   },
                                   {"work", 1});
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::memory);
    EXPECT_STREQ(error->what(), "rank 1");
  });
}

TEST(Collectives, DoneSaysWhetherAllHaveArrived) {
  threads::run(2, 10s, [](Communicator& world) {
    const auto aside = world.group({0, 1});
    if (world.rank() == 1) aside->receive(0, {"go", 0}).wait();
    Exchange exchange = all_gather(world, Tensor::zeros({1}, DType::u8), {"x", 0});
    if (world.rank() == 0) {
      EXPECT_FALSE(exchange.done());
      aside->send(1, Tensor::zeros({1}, DType::u8), {"go", 0});
    }
    EXPECT_EQ(exchange.wait().size(), 2u);
  });
}

}  // namespace
}  // namespace tessera::comm
