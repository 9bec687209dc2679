#include "comm/threads/launch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "../conformance.h"
#include "../shuffled_transport.h"
#include "base/fail.h"
#include "comm/collectives.h"
#include "tensor/scope.h"

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;
using tensor::DType;
using tensor::Tensor;

class ThreadsConformance : public testing::TestWithParam<ConformanceCase> {};

TEST_P(ThreadsConformance, Holds) { threads::run(GetParam().ranks, 30s, GetParam().body); }

INSTANTIATE_TEST_SUITE_P(Cases, ThreadsConformance, testing::ValuesIn(conformance_cases()),
                         [](const auto& chosen) {
                           return chosen.param.name + "On" + std::to_string(chosen.param.ranks);
                         });

// Each message is kept for up to three milliseconds and may overtake others.
class ShuffledConformance : public testing::TestWithParam<ConformanceCase> {};

TEST_P(ShuffledConformance, Holds) {
  threads::run(GetParam().ranks, 60s, [](Communicator& world) {
    const auto late = world.over([](auto below, auto) { return shuffled(below, 3ms); });
    GetParam().body(*late);
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, ShuffledConformance, testing::ValuesIn(conformance_cases()),
                         [](const auto& chosen) {
                           return chosen.param.name + "On" + std::to_string(chosen.param.ranks);
                         });

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// A callback of rank 0 may start its own ranks: their work is progress of the outer world.
TEST(Threads, RanksInsideARankKeepItsWorldAlive) {
  const auto inner = [](Communicator& world) {
    for (int i = 0; i < 60; ++i) {
      std::this_thread::sleep_for(25ms);
      barrier(world);
    }
  };
  threads::run(2, 700ms, [&](Communicator& world) {
    if (world.rank() == 0) threads::run(2, 30s, inner);
    barrier(world);
  });
}

TEST(Threads, TheRootCauseWinsAndEveryWaitEnds) {
  for (int failing = 0; failing < 4; ++failing) {
    std::atomic<int> ended{0};
    const std::string text = message_of([&] {
      threads::run(4, 60s, [&](Communicator& world) {
        struct Count {
          std::atomic<int>& n;
          ~Count() { ++n; }
        } count{ended};
        if (world.rank() == failing)
          fail(ErrorCode::model, "weight 'x' of rank {} is damaged", failing);
        barrier(world);
      });
    });
    EXPECT_EQ(text, "weight 'x' of rank " + std::to_string(failing) + " is damaged");
    EXPECT_EQ(ended, 4);
  }
}

TEST(Threads, OtherExceptionsPassThrough) {
  EXPECT_THROW(threads::run(2, 60s,
                            [](Communicator& world) {
                              if (world.rank() == 1) throw std::out_of_range("index");
                              barrier(world);
                            }),
               std::out_of_range);
}

TEST(Threads, AWaitEndsWhenThePeerStandsStill) {
  const std::string text = message_of([] {
    threads::run(2, 100ms, [](Communicator& world) {
      if (world.rank() == 0) world.receive(1, {"dispatch", 3}).wait();
    });
  });
  EXPECT_NE(text.find("rank 0 waited 0.1 s for 'dispatch' of layer 3 from rank 1"),
            std::string::npos)
      << text;
}

TEST(Threads, WhatIsNoExceptionEndsTheOthersToo) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(threads::run(2, 100s,
                            [](Communicator& world) {
                              if (world.rank() == 1) throw 7;
                              world.receive(1, {"dispatch", 3}).wait();
                            }),
               int);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 50s);
}

TEST(Threads, ABusyPeerIsWaitedFor) {
  threads::run(2, 1s, [](Communicator& world) {
    if (world.rank() == 1) {
      for (int i = 0; i < 100; ++i) {
        std::this_thread::sleep_for(15ms);
        world.advance();
      }
      world.send(0, Tensor::empty({1}, DType::u8), {"late", -1});
    } else {
      world.receive(1, {"late", -1}).wait();
    }
  });
}

// 0 waits for 1, 1 waits for 2, and 2 computes for ten times the deadline.
TEST(Threads, AChainOfWaitsLastsAsLongAsItsEndComputes) {
  threads::run(3, 200ms, [](Communicator& world) {
    if (world.rank() == 2) {
      for (int i = 0; i < 200; ++i) {
        std::this_thread::sleep_for(10ms);
        tensor::parallel_tasks(1, [](int64_t) {});  // as ops do
      }
    } else {
      world.receive(world.rank() + 1, {"chain", 1}).wait();
    }
    if (world.rank() > 0) world.send(world.rank() - 1, Tensor::empty({1}, DType::u8), {"chain", 1});
  });
}

TEST(Threads, TheEndOfAChainIsNamedWhenItStandsStill) {
  std::atomic<bool> over{false};
  const std::string text = message_of([&] {
    threads::run(3, 300ms, [&](Communicator& world) {
      if (world.rank() == 2) {
        while (!over) std::this_thread::sleep_for(10ms);
        return;
      }
      try {
        world.receive(world.rank() + 1, {"chain", 1}).wait();
      } catch (...) {
        over = true;
        throw;
      }
    });
  });
  EXPECT_NE(text.find("rank 2, which made no progress"), std::string::npos) << text;
}

TEST(Threads, AFastSenderIsHeldUpUntilItsMessagesAreExpected) {
  constexpr int64_t kEach = int64_t{64} << 20;
  const Tensor data = Tensor::empty({kEach}, DType::u8);
  threads::run(2, 10s, [&](Communicator& world) {
    constexpr int kMessages = 12;
    if (world.rank() == 0) {
      for (int i = 0; i < kMessages; ++i) world.send(1, data, {"bulk", i});
      return;
    }
    std::shared_ptr<Transport> transport;
    world.over([&](auto below, auto) { return transport = below; });
    for (int i = 0; i < 200 && transport->inbox().ahead(0) <= Transport::kMostAhead; ++i)
      std::this_thread::sleep_for(50ms);
    std::this_thread::sleep_for(100ms);
    EXPECT_LE(transport->inbox().ahead(0), Transport::kMostAhead + kEach);
    EXPECT_GT(transport->inbox().ahead(0), Transport::kMostAhead) << "it did not run ahead at all";
    for (int i = 0; i < kMessages; ++i)
      EXPECT_EQ(world.receive(0, {"bulk", i}).wait().bytes(), kEach);
  });
}

TEST(Threads, ASendThatNobodyExpectsHasADeadline) {
  const Tensor data = Tensor::empty({int64_t{200} << 20}, DType::u8);
  std::atomic<bool> over{false};
  const std::string text = message_of([&] {
    threads::run(2, 200ms, [&](Communicator& world) {
      try {
        if (world.rank() == 0)
          for (int i = 0; i < 4; ++i) world.send(1, data, {"bulk", i});
      } catch (...) {
        over = true;
        throw;
      }
      while (!over) std::this_thread::sleep_for(10ms);
    });
  });
  EXPECT_NE(text.find("rank 0 waited 0.2 s to send 'bulk' of layer 2 to rank 1"), std::string::npos)
      << text;
}

TEST(Threads, RanksOfDifferentProgramsAreToldApart) {
  const std::string text = message_of([] {
    threads::run(2, 10s, [](Communicator& world) {
      world.send(1 - world.rank(), Tensor::empty({1}, DType::u8),
                 {world.rank() == 0 ? "combine" : "dispatch", 2});
      world.receive(1 - world.rank(), {"dispatch", 2}).wait();
    });
  });
  EXPECT_NE(text.find("expected 'dispatch' of layer 2 from rank 0, which sent 'combine'"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace tessera::comm
