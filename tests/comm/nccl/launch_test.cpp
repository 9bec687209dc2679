#include "comm/nccl/launch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "../conformance.h"
#include "base/fail.h"
#include "comm/collectives.h"
#include "comm/nccl/transfer_queue.h"
#include "comm/threads/launch.h"
#include "device/emulated_nccl.h"
#include "device/emulated_streams.h"
#include "tensor/scope.h"

// Ranks are threads with a common emulated GPU and a single stream of computation.
namespace tessera::comm {
namespace {

using namespace std::chrono_literals;
using device::EmulatedDevice;
using device::EmulatedNccl;
using tensor::Device;
using tensor::DType;
using tensor::Tensor;

class Ranks {
 public:
  /// `own`: computation on a concurrent stream; else on the device's, immediately.
  explicit Ranks(bool own = true) : compute_(own ? gpu.pool().runtime().make_stream() : nullptr) {}
  void run(int ranks, std::chrono::milliseconds deadline,
           const std::function<void(Communicator&)>& body) {
    threads::run(ranks, deadline, [&](Communicator& world) {
      tensor::Scope scope;
      scope.stream = compute_.get();
      const tensor::BindScope bound(scope);
      const auto gpus = comm::nccl::over(world, EmulatedNccl::functions());
      body(*gpus);
    });
  }
  std::string error_of(int ranks, std::chrono::milliseconds deadline,
                       const std::function<void(Communicator&)>& body) {
    try {
      run(ranks, deadline, body);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  void expect_clean() const {
    EXPECT_EQ(nccl.misuses(), 0);
    EXPECT_EQ(nccl.open_ends(), 0);
  }
  EmulatedDevice gpu;
  EmulatedNccl nccl{gpu};

 private:
  std::shared_ptr<void> compute_;
};

class NcclConformance : public testing::TestWithParam<ConformanceCase> {};

TEST_P(NcclConformance, Holds) {
  Ranks ranks;
  ranks.run(GetParam().ranks, 60s, GetParam().body);
  ranks.expect_clean();
  EXPECT_EQ(ranks.gpu.pool().use().live, 0) << "a block was never given back";
}

INSTANTIATE_TEST_SUITE_P(Cases, NcclConformance, testing::ValuesIn(conformance_cases(Device::cuda)),
                         [](const auto& chosen) {
                           return chosen.param.name + "On" + std::to_string(chosen.param.ranks);
                         });

// Host messages still use the host transport.
class HostOverNccl : public testing::TestWithParam<ConformanceCase> {};

TEST_P(HostOverNccl, Holds) {
  Ranks ranks;
  const int64_t links = GetParam().ranks * (GetParam().ranks - 1);
  ranks.run(GetParam().ranks, 60s, GetParam().body);
  EXPECT_EQ(ranks.nccl.transfers(), links) << "the first byte of each link";
  ranks.expect_clean();
}

INSTANTIATE_TEST_SUITE_P(Cases, HostOverNccl, testing::ValuesIn(conformance_cases()),
                         [](const auto& chosen) {
                           return chosen.param.name + "On" + std::to_string(chosen.param.ranks);
                         });

TEST(NcclLaunch, RefusesAGpuThatCannotHoldAllTransfers) {
  Ranks ranks;
  ranks.gpu.shrink_to(20);
  const std::string text = ranks.error_of(2, 60s, [](Communicator&) {});
  EXPECT_NE(
      text.find("this GPU has 20 multiprocessors, and transfers between ranks with a GPU each "
                "may need 48 at once: use one rank, or `device` cpu"),
      std::string::npos)
      << text;
  ranks.gpu.shrink_to(48);
  EXPECT_EQ(ranks.error_of(2, 60s, [](Communicator&) {}), "no error");
}

TEST(Nccl, TheDevicesOwnStreamServes) {
  for (const ConformanceCase& one : conformance_cases(Device::cuda)) {
    if (one.ranks != 3) continue;
    Ranks ranks(false);
    ranks.run(one.ranks, 60s, one.body);
    ranks.expect_clean();
  }
}

TEST(Nccl, WaitingForATensorDoesNotWaitForItsElements) {
  Ranks ranks;
  ranks.run(2, 60s, [&](Communicator& world) {
    auto& runtime = ranks.gpu.pool().runtime();
    void* const stream = tensor::current_scope().stream;
    if (world.rank() == 1) {
      const auto hold = std::make_shared<device::EmulatedEvent>();
      runtime.wait(stream, hold.get());  // sent data is computed later
      const Tensor x = Tensor::from(std::vector<float>{1, 2, 3}, {3}).to(Device::cuda);
      world.send(0, x, {"late", -1});
      world.receive(0, {"got", -1}).wait();  // rank 0 has waited
      hold->reach();
    } else {
      const Tensor x = world.receive(1, {"late", -1}).wait();
      world.send(1, Tensor::zeros({1}, DType::u8), {"got", -1});
      EXPECT_EQ(x.to_floats(), (std::vector<float>{1, 2, 3}));
    }
  });
}

TEST(Nccl, AFloodIsHeldBack) {
  Ranks ranks;
  ranks.run(2, 60s, [&](Communicator& world) {
    auto& runtime = ranks.gpu.pool().runtime();
    const auto hold = std::make_shared<device::EmulatedEvent>();
    std::thread later;
    if (world.rank() == 0) {
      runtime.wait(tensor::current_scope().stream, hold.get());  // the GPU is behind the hosts
      later = std::thread([&] {
        std::this_thread::sleep_for(100ms);
        hold->reach();
      });
    }
    for (int i = 0; i < 500; ++i)
      world.send(1 - world.rank(), Tensor::zeros({i + 1}, DType::f32, Device::cuda), {"x", i});
    for (int i = 0; i < 500; ++i)
      EXPECT_EQ(world.receive(1 - world.rank(), {"x", i}).wait().elements(), i + 1);
    if (later.joinable()) later.join();
  });
  EXPECT_LE(ranks.nccl.most_under_way(), nccl::TransferQueue::kMostUnderWay);
  EXPECT_GT(ranks.nccl.most_under_way(), nccl::TransferQueue::kMostUnderWay / 2);
  ranks.expect_clean();
}

TEST(Nccl, TheRootCauseWinsAndNoStreamHangs) {
  for (int failing = 0; failing < 3; ++failing) {
    Ranks ranks;
    const std::string text = ranks.error_of(3, 60s, [&](Communicator& world) {
      const Tensor x = Tensor::zeros({100}, DType::f32, Device::cuda);
      auto arriving = all_gather(world, x, {"x", 0});
      if (world.rank() == failing)
        fail(ErrorCode::model, "weight 'x' of rank {} is damaged", failing);
      for (const Tensor& part : arriving.wait()) part.to_floats();
      all_gather(world, x, {"x", 1}).wait();
      barrier(world);
    });
    EXPECT_EQ(text, "weight 'x' of rank " + std::to_string(failing) + " is damaged");
    ranks.expect_clean();
  }
}

TEST(Nccl, AGpuThatHangsEndsWithTheFailureOfItsRank) {
  Ranks ranks;
  const std::string text = ranks.error_of(2, 60s, [&](Communicator& world) {
    barrier(world);
    if (world.rank() == 0) ranks.nccl.stall();
    barrier(world);
    if (world.rank() == 0) {
      const auto x = world.receive(1, {"x", 0}).wait();  // returns
      barrier(world);
      x.to_floats();  // hangs until the transfer is aborted
      world.receive(1, {"x", 1}).wait();
    } else {
      world.send(0, Tensor::zeros({9}, DType::f32, Device::cuda), {"x", 0});
      barrier(world);
      std::this_thread::sleep_for(50ms);
      fail(ErrorCode::memory, "rank 1 has no memory");
    }
  });
  EXPECT_EQ(text, "rank 1 has no memory");
  ranks.expect_clean();
}

TEST(Nccl, ATransferThatStandsStillEndsWithTheDeadline) {
  Ranks ranks;
  const std::string text = ranks.error_of(2, 300ms, [&](Communicator& world) {
    barrier(world);
    if (world.rank() == 0) ranks.nccl.stall();
    barrier(world);
    if (world.rank() == 1) world.send(0, Tensor::zeros({9}, DType::f32, Device::cuda), {"x", 0});
    if (world.rank() == 0) world.receive(1, {"x", 0}).wait().to_floats();
    if (world.rank() == 0) world.receive(1, {"x", 1}).wait();
  });
  EXPECT_NE(text.find("has not ended for 0.3 s"), std::string::npos) << text;
  ranks.expect_clean();
}

std::atomic<bool> hang{false};
int (*end_group)() = nullptr;

TEST(Nccl, AnAbortThatHangsHoldsNobodyUp) {
  EmulatedDevice gpu;
  EmulatedNccl emulated(gpu);
  const int64_t users = tensor::device_pool().use_count();
  nccl::Functions functions = EmulatedNccl::functions();
  end_group = functions.group_end;
  functions.group_end = [] {
    while (hang) std::this_thread::sleep_for(1ms);
    return end_group();
  };
  hang = true;
  try {
    threads::run(2, 300ms, [&](Communicator& world) {
      const auto gpus = nccl::over(world, functions);
      if (world.rank() == 1) fail(ErrorCode::memory, "rank 1 has no memory");
      world.receive(1, {"never", 0}).wait();
    });
    ADD_FAILURE() << "nothing failed";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 1 has no memory");
  }
  EXPECT_GT(emulated.open_ends(), 0);
  hang = false;
  while (tensor::device_pool().use_count() > users) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(emulated.open_ends(), 0) << "who hung has what it needs to end well";
  EXPECT_EQ(emulated.misuses(), 0);
}

TEST(Nccl, ErrorsOfNcclEndTheRun) {
  Ranks ranks;
  const std::string text = ranks.error_of(2, 60s, [&](Communicator& world) {
    barrier(world);
    if (world.rank() == 0) ranks.nccl.report(6);
    world.receive(1 - world.rank(), {"never", 0}).wait();
  });
  EXPECT_NE(text.find("failed: emulated error"), std::string::npos) << text;
  ranks.expect_clean();
}

TEST(Nccl, TooLittleMemoryForWhatArrivesIsTheReceiversError) {
  EmulatedDevice gpu(1 << 20);
  EmulatedNccl emulated(gpu);
  try {
    threads::run(2, 60s, [&](Communicator& world) {
      const auto gpus = nccl::over(world, EmulatedNccl::functions());
      const Tensor x = world.rank() == 0
                           ? Tensor::zeros({(1 << 20) * 3 / 4}, DType::u8, Device::cuda)
                           : Tensor();
      if (world.rank() == 0) gpus->send(1, x, {"x", 0});
      gpus->receive(1 - world.rank(), {"x", 0}).wait();
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::memory) << error.what();
  }
}

TEST(Nccl, MoreRanksThanAGpuHasQueuesForAreRefused) {
  Ranks ranks;
  const std::string text = ranks.error_of(nccl::kMostRanks + 1, 60s, [](Communicator&) {});
  EXPECT_NE(text.find("17 ranks with a GPU each"), std::string::npos) << text;
}

TEST(Nccl, SixteenRanksTalkAllToAll) {
  Ranks ranks;
  ranks.run(16, 60s, [](Communicator& world) {
    const float mine = static_cast<float>(world.rank());
    const Tensor x = Tensor::from(std::vector<float>(999, mine), {999}).to(Device::cuda);
    for (int round = 0; round < 3; ++round) {
      const auto all = all_gather(world, x, {"x", round}).wait();
      for (int r = 0; r < world.size(); ++r)
        EXPECT_EQ(all[static_cast<size_t>(r)].to_floats()[998], static_cast<float>(r));
    }
  });
  ranks.expect_clean();
}

TEST(Nccl, AWorldOfOneNeedsNoLink) {
  Ranks ranks;
  ranks.run(1, 10s, [](Communicator& world) {
    const Tensor x = Tensor::zeros({5}, DType::f32, Device::cuda);
    world.send(0, x, {"self", 0});
    EXPECT_EQ(world.receive(0, {"self", 0}).wait().raw(), x.raw());
  });
  EXPECT_EQ(ranks.nccl.transfers(), 0);
}

}  // namespace
}  // namespace tessera::comm
