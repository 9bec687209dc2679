#include "parallel/tensor/block_gather.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "base/fail.h"
#include "base/stopwatch.h"
#include "comm/paced_transport.h"
#include "comm/threads/launch.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using tensor::Tensor;

const std::vector<int64_t> kSizes{640, 1, 4096, 777};  // bytes of the blocks
constexpr int64_t kFirst = 3;                          // first block of the stage

std::byte byte_of(int64_t block, int64_t at) {
  return std::byte((block * 31 + at * 7 + at / 256) & 255);
}

/// A rank's runs of the blocks.
nn::ShardedBlocks spread(int rank, int ranks) {
  nn::ShardedBlocks blocks;
  blocks.blocks = {kFirst, kFirst + std::ssize(kSizes)};
  blocks.whole = kSizes;
  for (size_t b = 0; b < kSizes.size(); ++b) {
    const nn::Range run = nn::split({0, kSizes[b]}, ranks, rank);
    blocks.mine.push_back(Tensor::empty({run.size()}, tensor::DType::u8, tensor::Device::cpu,
                                        tensor::MemoryClass::weights));
    for (int64_t at = run.begin; at < run.end; ++at)
      blocks.mine.back().data<std::byte>()[at - run.begin] =
          byte_of(kFirst + static_cast<int64_t>(b), at);
  }
  return blocks;
}

void expect_whole(const Tensor& all, int block) {
  const int64_t size = kSizes[static_cast<size_t>(block - kFirst)];
  ASSERT_EQ(all.bytes(), size);
  int64_t wrong = 0;
  for (int64_t at = 0; at < size; ++at)
    wrong += all.data<std::byte>()[at] == byte_of(block, at) ? 0 : 1;
  EXPECT_EQ(wrong, 0) << "bytes of block " << block;
}

int64_t sent(comm::Communicator& world) {
  int64_t bytes = 0;
  for (const auto& [key, entry] : world.ledger().entries())
    bytes += key.first == "weights" ? entry.bytes : 0;
  return bytes;
}

TEST(BlockGather, GivesEveryRankAllBytesOfEachBlockPassByPass) {
  for (const int ranks : {1, 2, 3, 5})
    comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
      const nn::ShardedBlocks blocks = spread(world.rank(), ranks);
      BlockGather gather(world);
      int64_t own = 0;
      for (const Tensor& run : blocks.mine) own += run.bytes();
      for (int pass = 0; pass < 3; ++pass) {
        gather.begin(pass < 2);
        for (auto b = static_cast<int>(blocks.blocks.begin); b < blocks.blocks.end; ++b)
          expect_whole(gather.bytes(b, blocks), b);
      }
      EXPECT_EQ(sent(world), 3 * (ranks - 1) * own) << "each block once a pass, and none in vain";
    });
}

TEST(BlockGather, TheNextBlockTravelsWhileOneComputes) {
  comm::threads::run(2, 20s, [&](comm::Communicator& world) {
    const nn::ShardedBlocks blocks = spread(world.rank(), 2);
    const auto bytes = [&](int count) {
      int64_t sum = 0;
      for (int i = 0; i < count; ++i) sum += blocks.mine[static_cast<size_t>(i) % 4].bytes();
      return sum;
    };
    BlockGather gather(world);
    int begun = 0;
    for (int pass = 0; pass < 2; ++pass) {
      gather.begin(pass == 0);
      for (auto b = static_cast<int>(blocks.blocks.begin); b < blocks.blocks.end; ++b) {
        (void)gather.bytes(b, blocks);
        ++begun;
        EXPECT_EQ(sent(world), bytes(std::min(begun + 1, 8))) << "block " << b;
      }
    }
  });
}

/// Bytes of something besides the blocks, and their runs by rank.
struct Besides {
  Besides(int rank, int ranks, int64_t bytes) {
    for (int r = 0; r < ranks; ++r) runs.push_back(nn::split({0, bytes}, ranks, r));
    const nn::Range& run = runs[static_cast<size_t>(rank)];
    mine = Tensor::empty({run.size()}, tensor::DType::u8);
    for (int64_t at = run.begin; at < run.end; ++at)
      mine.data<std::byte>()[at - run.begin] = byte_of(9, at);
  }
  std::vector<nn::Range> runs;
  Tensor mine;
};

TEST(BlockGather, GivesAllOfWhatIsBesidesTheBlocksWhileOneIsUnderWay) {
  for (const int ranks : {1, 2, 3, 5})
    comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
      const nn::ShardedBlocks blocks = spread(world.rank(), ranks);
      BlockGather gather(world);
      for (int pass = 0; pass < 2; ++pass) {
        gather.begin(pass == 0);
        for (auto b = static_cast<int>(blocks.blocks.begin); b < blocks.blocks.end; ++b) {
          for (const int64_t bytes : {1, 64, 1000}) {  // some ranks may have nothing
            const Besides besides(world.rank(), ranks, bytes);
            const Tensor all = gather.whole(besides.mine, besides.runs);
            ASSERT_EQ(all.bytes(), bytes);
            int64_t wrong = 0;
            for (int64_t at = 0; at < bytes; ++at)
              wrong += all.data<std::byte>()[at] == byte_of(9, at) ? 0 : 1;
            EXPECT_EQ(wrong, 0) << ranks << " ranks";
          }
          expect_whole(gather.bytes(b, blocks), b);
        }
      }
    });
}

// At most 34 MB of 80 MB are in flight.
TEST(BlockGather, LargeThingsBesidesTheBlocksComeInParts) {
  constexpr int64_t kBytes = 80'000'001;
  for (const int ranks : {2, 4})
    comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
      const Besides besides(world.rank(), ranks, kBytes);
      tensor::Scope scope = tensor::current_scope();
      scope.memory = std::make_shared<tensor::MemoryTracker>();
      const tensor::BindScope bind(scope);
      BlockGather gather(world);
      const Tensor all = gather.whole(besides.mine, besides.runs);
      EXPECT_LE(scope.memory->peak(), kBytes + (int64_t{1} << 25));
      for (int64_t at = 0; at < kBytes; at += 999'999)
        EXPECT_EQ(all.data<std::byte>()[at], byte_of(9, at)) << at;
      EXPECT_EQ(all.data<std::byte>()[kBytes - 1], byte_of(9, kBytes - 1));
      int64_t here = 0;
      for (const auto& [key, entry] : world.ledger().entries())
        here += key == std::pair<std::string, int>("weights", -1) ? entry.bytes : 0;
      EXPECT_EQ(here, (ranks - 1) * besides.mine.bytes());
    });
}

TEST(BlockGather, RanksThatDisagreeOnWhatIsBesidesTheBlocksAreAnError) {
  try {
    comm::threads::run(2, 20s, [&](comm::Communicator& world) {
      const Besides besides(world.rank(), 2, 640 + world.rank());
      BlockGather gather(world);
      (void)gather.whole(besides.mine, besides.runs);
    });
    FAIL() << "a part of a weight was taken for all of it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::rank);
    EXPECT_NE(std::string(error.what()).find("besides its blocks"), std::string::npos)
        << error.what();
  }
}

TEST(BlockGather, HoldsTwoBlocksAtMost) {
  for (const int ranks : {2, 4})
    comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
      const nn::ShardedBlocks blocks = spread(world.rank(), ranks);
      tensor::Scope scope = tensor::current_scope();
      scope.memory = std::make_shared<tensor::MemoryTracker>();
      const tensor::BindScope bind(scope);
      BlockGather gather(world);
      for (int pass = 0; pass < 2; ++pass) {
        gather.begin(pass == 0);
        for (auto b = static_cast<int>(blocks.blocks.begin); b < blocks.blocks.end; ++b)
          (void)gather.bytes(b, blocks);
      }
      EXPECT_LE(scope.memory->peak(), 2 * *std::max_element(kSizes.begin(), kSizes.end()));
    });
}

/// Seconds of two passes over `blocks`, with a link as slow as the computation of a block;
/// `gathered`: blocks are remote.
double two_passes(comm::Communicator& world, const nn::ShardedBlocks& blocks, bool gathered) {
  constexpr auto kBlock = 20ms;
  comm::barrier(world);
  const base::Stopwatch clock;
  BlockGather gather(world);
  for (int pass = 0; pass < 2; ++pass) {
    gather.begin(pass == 0);
    for (auto b = static_cast<int>(blocks.blocks.begin); b < blocks.blocks.end; ++b) {
      if (gathered) (void)gather.bytes(b, blocks);
      std::this_thread::sleep_for(kBlock);
    }
  }
  comm::barrier(world);
  return clock.seconds();
}

// Without overlap the passes would take twice the time; the exact ratio is only printed, because a
// busy machine may be late.
TEST(BlockGather, ALinkThatBringsABlockInABlocksTimeIsHiddenBehindIt) {
  constexpr int64_t kBlocks = 12, kBytes = 200'000;
  for (const int ranks : {2, 4}) {
    double best = 9;
    for (int round = 0; round < 8 && best > 1.1; ++round)
      comm::threads::run(ranks, 20s, [&](comm::Communicator& world) {
        const auto slow = comm::paced(world, kBytes / 0.020);
        nn::ShardedBlocks blocks{{0, kBlocks}, {}, std::vector<int64_t>(kBlocks, kBytes)};
        for (int64_t b = 0; b < kBlocks; ++b)
          blocks.mine.push_back(Tensor::zeros({kBytes / ranks}, tensor::DType::u8));
        const double here = two_passes(*slow, blocks, false);
        const double spread = two_passes(*slow, blocks, true);
        if (world.rank() == 0) best = std::min(best, spread / here);
      });
    EXPECT_LE(best, 1.6) << ranks << " ranks";
    std::printf("%d ranks, gathered: %.3f of the time without\n", ranks, best);
  }
}

TEST(BlockGather, RanksThatDoNotHaveAllOfABlockAreAnError) {
  try {
    comm::threads::run(2, 20s, [&](comm::Communicator& world) {
      nn::ShardedBlocks blocks = spread(world.rank(), 2);
      if (world.rank() == 1) blocks.mine[0] = blocks.mine[0].slice(0, 0, 8);
      BlockGather gather(world);
      (void)gather.bytes(kFirst, blocks);
    });
    FAIL() << "a part of a block was taken for all of it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::rank);
    EXPECT_NE(std::string(error.what()).find("block 3"), std::string::npos) << error.what();
  }
}

TEST(BlockGather, ARankThatFailsMeanwhileIsTheOneThatIsTold) {
  try {
    comm::threads::run(3, 20s, [&](comm::Communicator& world) {
      const nn::ShardedBlocks blocks = spread(world.rank(), 3);
      BlockGather gather(world);
      gather.begin(true);
      for (auto b = static_cast<int>(blocks.blocks.begin);; ++b) {
        if (world.rank() == 1 && b == 5) fail(ErrorCode::model, "block 5 is damaged");
        (void)gather.bytes(b, blocks);
      }
    });
    FAIL() << "a failed rank went unnoticed";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "block 5 is damaged");
  }
}

}  // namespace
}  // namespace tessera::parallel
