#include "comm/threads/launch.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "../conformance.h"
#include "base/fail.h"
#include "comm/collectives.h"

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

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
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

TEST(Threads, ABusyPeerIsWaitedFor) {
  threads::run(2, 100ms, [](Communicator& world) {
    if (world.rank() == 1) {
      for (int i = 0; i < 30; ++i) {
        std::this_thread::sleep_for(15ms);
        world.advance();
      }
      world.send(0, Tensor::empty({1}, DType::u8), {"late", -1});
    } else {
      world.receive(1, {"late", -1}).wait();
    }
  });
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
