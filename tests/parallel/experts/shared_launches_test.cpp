// The meeting of ranks alone: the launch is a stand-in on the host.
#include "parallel/experts/shared_launches.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/collectives.h"
#include "comm/threads/launch.h"
#include "fused/shared_pages.h"
#include "kernels/far_memory.h"
#include "nn/random_bank.h"
#include "parallel/experts/exchange.h"
#include "tessera/error.h"

namespace tessera::parallel {
namespace {

using namespace std::chrono_literals;
using namespace nn::random_bank;

constexpr int kOwned = 5;  // experts

// Adds a rank's number and the first expert of a token to each channel, in bf16 or f32 rows. With
// peers it leaves the number of its layers in their buffers.
struct Marked final : fused::DeviceLayers {
  Marked(std::atomic<int>& count, fused::DevicePeers peers_)
      : launches(count), peers(std::move(peers_)) {}
  void run(std::span<const fused::DeviceLayer> layers) override {
    ++launches;
    for (size_t r = 0; r < layers.size(); ++r)
      for (int64_t t = 0; t < layers[r].tokens; ++t)
        for (int64_t c = 0; c < 32; ++c) {
          const float mark = static_cast<float>(peers.rank) + static_cast<float>(r) +
                             10 * static_cast<float>(layers[r].ids[t * 2]);
          static_cast<float*>(layers[r].y)[t * 32 + c] =
              static_cast<const float*>(layers[r].x)[t * layers[r].x_stride + c] + mark;
        }
    ++epoch;
    for (std::byte* const peer : peers.buffers) peer[peers.rank] = std::byte(epoch);
  }
  std::atomic<int>& launches;
  const fused::DevicePeers peers;
  int epoch = 0;
};

// Launches by a stand-in, until destruction.
struct StandIn {
  StandIn() {
    fused::replace_device_layers(
        {[this](const fused::DeviceSize& size, const fused::DevicePeers& peers) {
           ++opened;
           if (peers.rank == 0) seen = size, first_buffers = peers.buffers;
           return std::make_unique<Marked>(launches, peers);
         },
         [](const fused::DeviceSize&) { return 64; }});
  }
  ~StandIn() { fused::replace_device_layers({}); }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;
  std::atomic<int> launches{0}, opened{0};
  fused::DeviceSize seen;  // by the first rank
  std::vector<std::byte*> first_buffers;
};

struct OwnPart {
  SharedLaunches::Part part;
  std::vector<float> want;
};

// Tokens of a rank, with experts (t + rank) % 5 and none.
OwnPart part_of(int rank, int ranks, int64_t tokens, uint32_t seed) {
  const std::vector<int> owner = experts_in_blocks(kOwned, ranks);
  std::vector<bool> held;
  for (const int o : owner) held.push_back(o == rank);
  OwnPart made;
  SharedLaunches::Part& part = made.part;
  part.tokens = normal({tokens, 32}, seed);
  part.ids = Tensor::empty({tokens, 2}, DType::i32);
  for (int64_t t = 0; t < tokens; ++t) {
    part.ids.row<int32_t>(t)[0] = static_cast<int32_t>((t + rank) % kOwned);
    part.ids.row<int32_t>(t)[1] = -1;
  }
  part.weights = Tensor::zeros({tokens, 2}, DType::f32);
  part.result = Tensor::zeros({tokens, 32}, DType::f32);
  part.experts = bank(kOwned, 3, DType::f32, held);
  made.want = part.tokens.to_floats();
  for (size_t i = 0; i < made.want.size(); ++i)
    made.want[i] +=
        static_cast<float>(rank) + 10 * static_cast<float>((int64_t(i) / 32 + rank) % kOwned);
  return made;
}

TEST(SharedLaunches, RanksMeetInOneLaunchALayer) {
  for (const int ranks : {1, 2, 4}) {
    StandIn gpu;
    comm::threads::run(ranks, 60s, [&](comm::Communicator& world) {
      SharedLaunches launches(world, {experts_in_blocks(kOwned, ranks), 6, 2});
      for (uint32_t layer = 0; layer < 3; ++layer) {
        const int64_t tokens = world.rank() == 1 ? 0 : 6 - world.rank();
        const OwnPart own = part_of(world.rank(), ranks, tokens, layer + 10);
        launches.run(static_cast<int>(layer), own.part);
        EXPECT_EQ(own.part.result.to_floats(), own.want) << layer;
      }
    });
    EXPECT_EQ(gpu.launches, 3);
    EXPECT_EQ(gpu.opened, 1) << "one operator for all layers of a form";
    EXPECT_EQ(gpu.seen.ranks, ranks);
    EXPECT_EQ(gpu.seen.tokens, 6);
    EXPECT_EQ(gpu.seen.slots, 2);
    EXPECT_EQ(gpu.seen.hidden, 32);
    EXPECT_EQ(gpu.seen.inner, 16);
  }
}

// Each rank launches its own part, beside buffers of all.
TEST(SharedLaunches, RanksWithAGpuEachLaunchTheirParts) {
  const fused::GpuOfEachRank gpus;
  for (const int ranks : {2, 4}) {
    StandIn gpu;
    comm::threads::run(ranks, 60s, [&](comm::Communicator& world) {
      SharedLaunches launches(world, {experts_in_blocks(kOwned, ranks), 6, 2});
      for (uint32_t layer = 0; layer < 3; ++layer) {
        const OwnPart own = part_of(world.rank(), ranks, 6 - world.rank(), layer + 10);
        launches.run(static_cast<int>(layer), own.part);
        EXPECT_EQ(own.part.result.to_floats(), own.want) << layer;
      }
      comm::barrier(world);
      for (int r = 0; r < ranks && world.rank() == 0; ++r)
        EXPECT_EQ(gpu.first_buffers[0][r], std::byte{3});
      comm::barrier(world);
    });
    EXPECT_EQ(gpu.launches, 3 * ranks);
    EXPECT_EQ(gpu.opened, ranks) << "one operator for all layers of a form";
    EXPECT_EQ(std::ssize(gpu.first_buffers), ranks);
    EXPECT_EQ(gpu.seen.inner, 16);
  }
}

TEST(SharedLaunches, RowsAreCountedAsIfTheyHadTravelled) {
  StandIn gpu;
  comm::threads::run(2, 60s, [&](comm::Communicator& world) {
    SharedLaunches launches(world, {experts_in_blocks(kOwned, 2), 5, 2});
    const OwnPart own = part_of(world.rank(), 2, 5, 1);
    launches.run(4, own.part);
    const auto count = launches.count(4, own.part.ids, own.part.experts, own.part.tokens);
    // Each rank has a token for each expert: two of rank 0, three of rank 1.
    EXPECT_EQ(count.assignments, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(count.coming, 5 * 32 * 4);
    EXPECT_EQ(launches.coming_bound(own.part.tokens), 2 * 5 * 2 * 32 * 4);
    const auto& sent = world.ledger().entries();
    const int64_t out = world.rank() == 0 ? 3 : 2;
    EXPECT_EQ(sent.at({"dispatch", 4}).bytes, out * 128);
    EXPECT_EQ(sent.at({"combine", 4}).bytes, (5 - out) * 128);
  });
}

std::string failure_of(int ranks, std::chrono::milliseconds deadline,
                       const std::function<void(comm::Communicator&)>& body, ErrorCode code) {
  try {
    comm::threads::run(ranks, deadline, body);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

TEST(SharedLaunches, ARankThatNeverComesEndsTheOthersAtTheDeadline) {
  for (const int missing : {0, 1}) {
    StandIn gpu;
    const std::string said = failure_of(
        2, 300ms,
        [&](comm::Communicator& world) {
          const auto aside = world.group({0, 1});
          SharedLaunches launches(world, {experts_in_blocks(kOwned, 2), 5, 2});
          launches.run(0, part_of(world.rank(), 2, 5, 1).part);
          if (world.rank() == missing) {  // waits for something else
            (void)aside->receive(1 - missing, {"nothing", -1}).wait();
            return;
          }
          launches.run(7, part_of(world.rank(), 2, 5, 1).part);
        },
        ErrorCode::rank);
    EXPECT_FALSE(said.empty());
    EXPECT_LE(gpu.launches, 1) << said;
  }
}

TEST(SharedLaunches, ALaunchThatFailsFailsOnAllRanks) {
  fused::replace_device_layers(
      {[](const fused::DeviceSize&,
          const fused::DevicePeers&) -> std::unique_ptr<fused::DeviceLayers> {
         throw Error(ErrorCode::plan, "too many blocks");
       },
       [](const fused::DeviceSize&) { return 64; }});
  std::atomic<int> ended{0};
  const std::string said = failure_of(
      3, 60s,
      [&](comm::Communicator& world) {
        SharedLaunches launches(world, {experts_in_blocks(kOwned, 3), 5, 2});
        try {
          launches.run(0, part_of(world.rank(), 3, 5, 1).part);
        } catch (const Error&) {
          ++ended;
          throw;
        }
      },
      ErrorCode::plan);
  EXPECT_NE(said.find("too many blocks"), std::string::npos) << said;
  EXPECT_EQ(ended, 3);
  fused::replace_device_layers({});
}

TEST(SharedLaunches, WithAGpuEachAFailureOfOneRankIsThatOfAll) {
  for (const bool maps : {false, true}) {
    StandIn gpu;
    const fused::GpuOfEachRank gpus([&](int rank) {
      fused::SharedPages::Faults faults;
      if (rank == 1 && !maps) faults.mappings = 0;
      return faults;
    });
    if (maps)
      fused::replace_device_layers(
          {[](const fused::DeviceSize&,
              const fused::DevicePeers& peers) -> std::unique_ptr<fused::DeviceLayers> {
             if (peers.rank == 2) throw Error(ErrorCode::rank, "too few blocks");
             return nullptr;
           },
           [](const fused::DeviceSize&) { return 64; }});
    std::atomic<int> ended{0};
    const std::string said = failure_of(
        3, 60s,
        [&](comm::Communicator& world) {
          SharedLaunches launches(world, {experts_in_blocks(kOwned, 3), 5, 2});
          try {
            launches.run(0, part_of(world.rank(), 3, 5, 1).part);
          } catch (const Error& error) {
            EXPECT_NE(
                std::string(error.what()).find(maps ? "too few blocks" : "rank 1: no mapping"),
                std::string::npos)
                << error.what();
            ++ended;
            throw;
          }
        },
        ErrorCode::rank);
    EXPECT_FALSE(said.empty());
    EXPECT_EQ(ended, 3);
    EXPECT_EQ(gpu.launches, 0);
  }
}

TEST(SharedLaunches, RanksOfOtherHostsAreRefused) {
  if (kernels::has_far_memory()) GTEST_SKIP() << "this program reaches them by NVSHMEM";
  StandIn gpu;
  const fused::GpuOfEachRank gpus;
  fused::replace_gpu_places([](int rank) {
    fused::GpuPlace place = fused::own_gpu(rank);
    place.process.machine += static_cast<uint64_t>(rank == 1);
    return place;
  });
  const std::string said = failure_of(
      2, 60s,
      [&](comm::Communicator& world) {
        SharedLaunches launches(world, {experts_in_blocks(kOwned, 2), 5, 2});
        launches.run(0, part_of(world.rank(), 2, 5, 1).part);
      },
      ErrorCode::plan);
  EXPECT_NE(said.find("ranks 0 and 1 are on different hosts"), std::string::npos) << said;
  EXPECT_EQ(gpu.launches, 0);
}

TEST(SharedLaunches, RanksMustAgreeAboutALayer) {
  StandIn gpu;
  const std::string said = failure_of(
      2, 60s,
      [&](comm::Communicator& world) {
        SharedLaunches launches(world, {experts_in_blocks(kOwned, 2), 5, 2});
        SharedLaunches::Part part = part_of(world.rank(), 2, 5, 1).part;
        if (world.rank() == 1) part.ids = Tensor::zeros({5, 3}, DType::i32);
        launches.run(3, std::move(part));
      },
      ErrorCode::rank);
  EXPECT_NE(said.find("layer 3: rank 1 has"), std::string::npos) << said;
}

TEST(SharedLaunches, ExpertsOfAllRanksHaveOneForm) {
  StandIn gpu;
  const std::string said = failure_of(
      2, 60s,
      [&](comm::Communicator& world) {
        SharedLaunches launches(world, {experts_in_blocks(kOwned, 2), 5, 2});
        SharedLaunches::Part part = part_of(world.rank(), 2, 5, 1).part;
        if (world.rank() == 1)
          part.experts = bank(kOwned, 3, DType::bf16, {false, false, false, true, true});
        launches.run(3, std::move(part));
      },
      ErrorCode::rank);
  EXPECT_NE(said.find("layer 3: the experts of rank 1 have another form"), std::string::npos)
      << said;
}

}  // namespace
}  // namespace tessera::parallel
