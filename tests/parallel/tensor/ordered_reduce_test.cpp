#include "parallel/tensor/ordered_reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <future>
#include <thread>

#include "base/fail.h"
#include "comm/threads/launch.h"
#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using tensor::Tensor;

constexpr int64_t kColumns = 3;

/// Numbers of some rows, different for each row.
Tensor numbers(nn::Range rows, int seed) {
  std::vector<float> values;
  for (int64_t at = rows.begin * kColumns; at < rows.end * kColumns; ++at)
    values.push_back(std::sin(float(at) + 0.7f * float(seed)));
  return Tensor::from(std::span<const float>(values), {rows.size(), kColumns});
}

struct Summed {
  std::vector<float> values;
  int64_t bytes = 0, messages = 0;
};

/// Each rank's result for a sum of `rows` rows, in chunks of at least `least`.
std::vector<Summed> summed(int ranks, int64_t rows, int64_t least) {
  std::vector<Summed> all(static_cast<size_t>(ranks));
  comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
    OrderedReduce reduce(world, least);
    std::vector<int> asked(static_cast<size_t>(rows));
    const auto part = [&](nn::Range some) {
      std::this_thread::sleep_for(std::chrono::microseconds((some.end * (world.rank() + 1)) % 300));
      for (int64_t row = some.begin; row < some.end; ++row) ++asked[static_cast<size_t>(row)];
      return numbers(some, world.rank());
    };
    const auto finish = [&](const Tensor& sum, nn::Range some) {
      EXPECT_EQ(sum.size(0), some.size());
      return ops::cast(ops::add(sum, numbers(some, 99)), tensor::DType::bf16);
    };
    Summed& mine = all[static_cast<size_t>(world.rank())];
    mine.values = reduce.sum(rows, part, finish).to_floats();
    EXPECT_EQ(asked, std::vector<int>(static_cast<size_t>(rows), 1));
    for (const auto& [key, entry] : world.ledger().entries()) {
      mine.bytes += entry.bytes;
      mine.messages += entry.messages;
    }
  });
  return all;
}

TEST(OrderedReduce, AnyNumberOfChunksGivesTheBitsAndBytesOfOne) {
  for (int ranks : {1, 2, 3, 4})
    for (int64_t rows : {0, 1, 5, 64, 131}) {
      const auto one = summed(ranks, rows, 1000);
      std::vector<float> expected;
      Tensor sum = numbers({0, rows}, 0);
      for (int r = 1; r < ranks; ++r) sum = ops::add(sum, numbers({0, rows}, r));
      expected = ops::cast(ops::add(sum, numbers({0, rows}, 99)), tensor::DType::bf16).to_floats();
      int64_t bytes = 0;
      for (int64_t least : {1000, 40, 16, 1}) {
        const auto some = summed(ranks, rows, least);
        bytes = 0;
        for (size_t r = 0; r < some.size(); ++r) {
          EXPECT_EQ(some[r].values, expected) << rows << " rows on " << ranks << " by " << least;
          EXPECT_EQ(some[r].bytes, one[r].bytes) << rows << " rows on " << ranks << " by " << least;
          bytes += some[r].bytes;
        }
      }
      EXPECT_EQ(bytes, (ranks - 1) * rows * kColumns * (4 + 2));
    }
}

TEST(OrderedReduce, ChunksHaveEnoughRowsAndAreFew) {
  const auto chunks = [](int64_t rows, int64_t least) {
    return summed(2, rows, least)[0].messages / 2;  // there and back
  };
  EXPECT_EQ(chunks(127, OrderedReduce::kLeastRows), 1);
  EXPECT_EQ(chunks(255, OrderedReduce::kLeastRows), 1);
  EXPECT_EQ(chunks(256, OrderedReduce::kLeastRows), 2);
  EXPECT_EQ(chunks(5000, OrderedReduce::kLeastRows), OrderedReduce::kMostChunks);
  EXPECT_EQ(chunks(3, 1), 2) << "a rank has a row of each";
}

TEST(OrderedReduce, AddsInTheOrderOfRanks) {
  // (1 + 2^-24) + 2^-24 and 1 + (2^-24 + 2^-24) differ in f32.
  comm::threads::run(3, 20s, [](comm::Communicator& world) {
    OrderedReduce reduce(world);
    const std::vector<float> mine{world.rank() == 0 ? 1.0f : 0x1p-24f};
    const auto part = [&](nn::Range) { return Tensor::from(std::span<const float>(mine), {1, 1}); };
    const auto as_it_is = [](const Tensor& sum, nn::Range) { return sum; };
    EXPECT_EQ(reduce.sum(1, part, as_it_is).to_floats()[0], 1.0f);
  });
}

Tensor as_it_is(const Tensor& sum, nn::Range) { return sum; }

// Rank 1 sends its first part when rank 0 computes its second: without overlap rank 0 would wait
// forever.
TEST(OrderedReduce, ComputesTheNextPartWhileOneTravels) {
  std::promise<void> second;
  auto begun = second.get_future().share();
  comm::threads::run(2, 20s, [&](comm::Communicator& world) {
    OrderedReduce reduce(world, 4);
    int calls = 0;
    const auto part = [&](nn::Range some) {
      ++calls;
      if (world.rank() == 0 && calls == 2) second.set_value();
      if (world.rank() == 1 && calls == 1) {
        EXPECT_EQ(begun.wait_for(15s), std::future_status::ready);
      }
      return numbers(some, world.rank());
    };
    reduce.sum(8, part, as_it_is);
    EXPECT_EQ(calls, 2);
  });
}

TEST(OrderedReduce, ARankThatFailsInAChunkEndsTheOthers) {
  int ended = 0;
  try {
    comm::threads::run(2, 20s, [&](comm::Communicator& world) {
      OrderedReduce reduce(world, 4);
      const auto part = [&](nn::Range some) {
        if (world.rank() == 1 && some.begin > 0) fail(ErrorCode::cancelled, "rank 1 was stopped");
        return numbers(some, world.rank());
      };
      try {
        reduce.sum(16, part, as_it_is);
      } catch (const Error&) {
        if (world.rank() == 0) ++ended;
        throw;
      }
    });
    FAIL() << "nobody heard of it";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::cancelled);
  }
  EXPECT_EQ(ended, 1);
}

TEST(OrderedReduce, ARankThatStandsStillInAChunkIsNamedAfterTheDeadline) {
  std::promise<void> over;
  auto ended = over.get_future().share();
  try {
    comm::threads::run(3, 300ms, [&](comm::Communicator& world) {
      OrderedReduce reduce(world, 4);
      const auto part = [&](nn::Range some) {
        if (world.rank() == 2 && some.begin > 0) ended.wait_for(15s);
        return numbers(some, world.rank());
      };
      try {
        reduce.sum(16, part, as_it_is);
      } catch (const Error&) {
        if (world.rank() == 0) over.set_value();
        throw;
      }
    });
    FAIL() << "nobody waited";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::rank);
    EXPECT_NE(std::string(e.what()).find("'reduce'"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("rank 2"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tessera::parallel
