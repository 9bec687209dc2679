#include "fused/peer_buffers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>

#include "comm/collectives.h"
#include "comm/file_post.h"
#include "comm/threads/launch.h"
#include "fused/shared_pages.h"
#include "kernels/far_memory.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::fused {
namespace {

using namespace std::chrono_literals;
using tensor::DType;
using tensor::Tensor;

constexpr int64_t kPeerBytes = 10000;
constexpr comm::Tag kPeerTag{"peer buffers", -1, TrafficKind::control};

PeerBuffers opened(comm::Communicator& world, int64_t bytes = kPeerBytes) {
  const std::vector<GpuPlace> places = gather_places(world);
  EXPECT_FALSE(share_a_gpu(world, places));
  return open_peer_buffers(world, places, bytes);
}

TEST(PeerBuffers, EachRankWritesIntoAllOthers) {
  const GpuOfEachRank gpus;
  for (const int ranks : {2, 3, 8})
    comm::threads::run(ranks, 60s, [&](comm::Communicator& world) {
      const PeerBuffers buffers = opened(world);
      ASSERT_EQ(std::ssize(buffers.addresses), ranks);
      std::byte* const own = buffers.addresses[size_t(world.rank())];
      for (int64_t i = 0; i < kPeerBytes; ++i) ASSERT_EQ(own[i], std::byte{0});
      comm::barrier(world);
      for (std::byte* const peer : buffers.addresses)
        peer[world.rank()] = std::byte(world.rank() + 1);
      comm::barrier(world);
      for (int r = 0; r < ranks; ++r) EXPECT_EQ(own[r], std::byte(r + 1));
      comm::barrier(world);
    });
}

TEST(PeerBuffers, TheOwnOneCounts) {
  const GpuOfEachRank gpus;
  comm::threads::run(2, 60s, [&](comm::Communicator& world) {
    tensor::Scope scope;
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    const tensor::BindScope bind(scope);
    const PeerBuffers buffers = opened(world);
    EXPECT_EQ(scope.memory->current(tensor::MemoryClass::buffers), kPeerBytes);
  });
}

TEST(PeerBuffers, ARankMayEndBeforeOthersStopWriting) {
  const GpuOfEachRank gpus;
  comm::threads::run(2, 60s, [&](comm::Communicator& world) {
    PeerBuffers buffers = opened(world);
    if (world.rank() == 0) buffers = {};
    comm::barrier(world);
    if (world.rank() == 1) buffers.addresses[0][5] = std::byte{1};
    comm::barrier(world);
  });
}

// The common error of all ranks.
std::string error_of_all(int ranks, const std::function<void(comm::Communicator&)>& body,
                         ErrorCode code, std::chrono::milliseconds deadline = 60s) {
  std::mutex mutex;
  std::set<std::string> texts;
  int ended = 0;
  EXPECT_THROW(comm::threads::run(ranks, deadline,
                                  [&](comm::Communicator& world) {
                                    try {
                                      body(world);
                                    } catch (const Error& error) {
                                      const std::lock_guard lock(mutex);
                                      EXPECT_EQ(error.code(), code) << error.what();
                                      texts.insert(error.what());
                                      ++ended;
                                      throw;
                                    }
                                  }),
               Error);
  EXPECT_EQ(ended, ranks);
  EXPECT_EQ(texts.size(), 1u);
  return texts.empty() ? "" : *texts.begin();
}

TEST(PeerBuffers, AFaultOfOneRankIsTheErrorOfAll) {
  struct Fault {
    SharedPages::Faults faults;
    ErrorCode code;
    const char* text;
  };
  for (const Fault& fault :
       {Fault{{.problem = "no peer access"},
              ErrorCode::plan,
              "moe=fused, rank 1: its GPU 0000:01:00.0 cannot write into GPU 0000:00:00.0 of rank "
              "0: no peer access; use moe=bulk"},
        {{.allocates = false}, ErrorCode::memory, "moe=fused, rank 1: no memory"},
        {{.bytes_less = 4},
         ErrorCode::rank,
         "moe=fused, rank 0: a file of 9996 bytes; expected 10000"},
        {{.mappings = 0}, ErrorCode::rank, "moe=fused, rank 1: no mapping"},
        {{.mappings = 1}, ErrorCode::rank, "moe=fused, rank 1: no mapping"}}) {
    const GpuOfEachRank gpus(
        [&](int rank) { return rank == 1 ? fault.faults : SharedPages::Faults{}; });
    EXPECT_EQ(error_of_all(
                  3, [](comm::Communicator& world) { (void)opened(world); }, fault.code),
              fault.text);
  }
}

TEST(PeerBuffers, SizesMustAgree) {
  const GpuOfEachRank gpus;
  EXPECT_EQ(error_of_all(
                3,
                [](comm::Communicator& world) {
                  (void)opened(world, world.rank() == 2 ? kPeerBytes + 64 : kPeerBytes);
                },
                ErrorCode::rank),
            "moe=fused: the buffer of rank 0 has 10000 bytes, that of rank 2 10064; all ranks must "
            "run the same program on GPUs of one kind");
}

TEST(PeerBuffers, AMessageOfAnotherSizeIsRefused) {
  const GpuOfEachRank gpus;
  EXPECT_EQ(error_of_all(
                2,
                [](comm::Communicator& world) {
                  if (world.rank() == 0) return (void)opened(world);
                  (void)comm::all_gather(world, Tensor::zeros({7}, DType::u8), kPeerTag).wait();
                  comm::barrier(world);
                },
                ErrorCode::rank),
            "moe=fused: rank 1 sent 7 bytes about its GPU; expected 32");
}

// Rank 1 tells about its GPU, and then never comes.
TEST(PeerBuffers, ARankThatDoesNotAnswerEndsTheOthersAtTheDeadline) {
  const GpuOfEachRank gpus;
  std::atomic<bool> refused{false};
  EXPECT_THROW(comm::threads::run(2, 300ms,
                                  [&](comm::Communicator& world) {
                                    const auto aside = world.group({0, 1});
                                    const std::vector<GpuPlace> places = gather_places(world);
                                    if (world.rank() == 1) {
                                      (void)aside->receive(0, {"nothing", -1}).wait();
                                      return;
                                    }
                                    try {
                                      (void)open_peer_buffers(world, places, kPeerBytes);
                                    } catch (const Error& error) {
                                      refused = error.code() == ErrorCode::rank;
                                      throw;
                                    }
                                  }),
               Error);
  EXPECT_TRUE(refused);
}

// Rank 1 names its post, and sends no file.
TEST(PeerBuffers, AFileThatNeverComesIsAnError) {
  const GpuOfEachRank gpus;
  const std::string text = error_of_all(
      2,
      [](comm::Communicator& world) {
        if (world.rank() == 0) return (void)opened(world);
        (void)gather_places(world);
        const comm::FilePost post;
        const struct {
          int64_t bytes;
          comm::FilePost::Address post;
        } offer{kPeerBytes, post.address()};
        const Tensor well = Tensor::empty({0}, DType::u8),
                     message = Tensor::empty({sizeof offer}, DType::u8);
        std::memcpy(message.raw(), &offer, sizeof offer);
        for (const Tensor& own : {well, message, well, well}) {
          const std::vector<Tensor> all = comm::all_gather(world, own, kPeerTag).wait();
          const auto error = own.elements() == 0 ? comm::error_of(all[0]) : std::nullopt;
          if (error) throw Error(*error);
        }
      },
      ErrorCode::rank);
  EXPECT_EQ(text, "moe=fused, rank 0: process " + std::to_string(getpid()) +
                      " of this host sent no file");
}

TEST(GpuPlace, AddressesOfPeersArePrintable) {
  GpuPlace place = own_gpu(7);
  EXPECT_EQ(place.device(), "0000:07:00.0");
  place.address.fill('\n');
  EXPECT_EQ(place.device(), std::string(16, '?'));
}

TEST(GpuPlace, RanksOfAProcessMayShareAGpu) {
  comm::threads::run(2, 60s, [&](comm::Communicator& world) {
    EXPECT_TRUE(share_a_gpu(world, gather_places(world)));
    EXPECT_TRUE(share_a_gpu(world, {own_gpu(3), own_gpu(3)}));
    EXPECT_FALSE(share_a_gpu(world, {own_gpu(0), own_gpu(1)}));
  });
}

TEST(GpuPlace, OtherHostsAndSharedGpusAreRefusedByName) {
  const auto text_of = [](std::vector<GpuPlace> places) -> std::string {
    std::string text;
    comm::threads::run(3, 60s, [&](comm::Communicator& world) {
      try {
        (void)share_a_gpu(world, places);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::plan);
        if (world.rank() == 0) text = error.what();
      }
    });
    return text;
  };
  std::vector<GpuPlace> places{own_gpu(0), own_gpu(1), own_gpu(2)};
  EXPECT_EQ(text_of(places), "");
  places[2].process.machine += 1;
  EXPECT_EQ(text_of(places),
            kernels::has_far_memory()
                ? ""
                : "moe=fused on GPUs: ranks 0 and 2 are on different hosts, and this "
                  "program was built without NVSHMEM; use moe=bulk");
  places[2] = own_gpu(1);
  places[2].process.pid += 1;
  EXPECT_EQ(text_of(places),
            "moe=fused on GPUs: ranks 1 and 2 are processes on GPU 0000:01:00.0; start one "
            "process, whose ranks share it, or give each rank a GPU");
}

}  // namespace
}  // namespace tessera::fused
