#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "comm/collectives.h"
#include "comm/threads/launch.h"
#include "scripted_transport.h"

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;
using tensor::DType;
using tensor::Tensor;

TEST(Communicator, RefusesRanksThatAreNotThere) {
  threads::run(2, 10s, [](Communicator& world) {
    EXPECT_THROW(world.send(2, Tensor::empty({1}, DType::u8), {"x", 0}), Error);
    EXPECT_THROW(world.receive(-1, {"x", 0}), Error);
    EXPECT_THROW(world.group({0, 0}), Error);
    EXPECT_THROW(world.group({1 - world.rank()}), Error);
  });
}

TEST(Communicator, AReceiveIsWaitedForOnce) {
  threads::run(1, 10s, [](Communicator& world) {
    world.send(0, Tensor::zeros({2}, DType::u8), {"self", 0});
    Pending pending = world.receive(0, {"self", 0});
    EXPECT_TRUE(pending.done());
    EXPECT_EQ(pending.wait().bytes(), 2);
    EXPECT_THROW(pending.wait(), Error);
    EXPECT_EQ(world.ledger().total().bytes, 0) << "a message to oneself is no traffic";
  });
}

TEST(Communicator, AnotherTransportStandsOverAWorldAlone) {
  threads::run(2, 10s, [](Communicator& world) {
    const auto same = [](auto below, auto deadline) {
      EXPECT_EQ(deadline, 10s);
      return below;
    };
    EXPECT_THROW(world.group({world.rank()})->over(same), Error);
    const auto upper = world.over(same);
    upper->send(1 - world.rank(), Tensor::empty({3}, DType::u8), {"x", 0});
    world.send(1 - world.rank(), Tensor::empty({4}, DType::u8), {"x", 0});
    EXPECT_EQ(world.receive(1 - world.rank(), {"x", 0}).wait().bytes(), 4);
    EXPECT_EQ(upper->receive(1 - world.rank(), {"x", 0}).wait().bytes(), 3);
    EXPECT_EQ(world.ledger().total().bytes, 7);
  });
}

// The transport of a world.
std::shared_ptr<Transport> below(Communicator& world) {
  std::shared_ptr<Transport> found;
  world.over([&](auto transport, auto) { return found = transport; });
  return found;
}

TEST(Communicator, GroupsAndDroppedReceivesLeaveNothingBehind) {
  threads::run(3, 10s, [](Communicator& world) {
    const auto transport = below(world);
    for (int round = 0; round < 50; ++round) {
      const auto request = world.group({2, 0, 1});
      request->send((request->rank() + 1) % 3, Tensor::zeros({9}, DType::u8), {"left", round});
      if (round % 2 == 0) request->receive((request->rank() + 2) % 3, {"left", round});
    }
    barrier(world);  // messages of closed channels may be in flight until here
    EXPECT_LE(transport->inbox().channels(), 3u) << "of 51";
  });
}

// The error of a rank's work, or nothing.
std::string said_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Communicator, AFailureOfARequestEndsItsWaitsAndThoseOfItsGroupsAlone) {
  threads::run(3, 10s, [](Communicator& world) {
    const auto transport = below(world);
    const auto begin = std::chrono::steady_clock::now();
    for (int round = 0; round < 20; ++round) {
      const auto request = world.request();
      const auto group = request->group({2, 1, 0});
      if (world.rank() == 1) group->fail_all({ErrorCode::memory, "no memory"});
      const Pending never = request->receive(2, {"never", 0});
      EXPECT_EQ(said_of([&] { group->receive(0, {"never", 0}).wait(); }), "no memory");
      EXPECT_EQ(said_of([&] { request->check(); }), "no memory");
      EXPECT_EQ(request->failed().has_value(), world.rank() == 1);
      EXPECT_EQ(said_of([&] { barrier(world); }), "") << "of the world";
      EXPECT_FALSE(world.failed());
    }
    barrier(world);
    EXPECT_LE(transport->inbox().channels(), 7u) << "of 61";
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  });
}

TEST(Communicator, ARankThatBeginsARequestLaterHearsThatItHasEnded) {
  threads::run(2, 10s, [](Communicator& world) {
    if (world.rank() == 0) {
      const auto request = world.request();
      request->fail_all({ErrorCode::memory, "no memory"});
      barrier(world);
      return barrier(world);
    }
    barrier(world);
    const auto request = world.request();
    EXPECT_EQ(said_of([&] { request->check(); }), "no memory");
    barrier(world);
  });
}

TEST(Communicator, ASenderThatWaitsForRoomHearsThatItsRequestHasEnded) {
  std::atomic<bool> heard = false;
  threads::run(2, 10s, [&](Communicator& world) {
    auto request = world.request();
    if (world.rank() == 1) {
      std::this_thread::sleep_for(50ms);
      request->fail_all({ErrorCode::memory, "no memory"});
      for (int i = 0; i < 1000 && !heard; ++i) std::this_thread::sleep_for(10ms);  // no room yet
    } else {
      const Tensor much = Tensor::zeros({int64_t{100} << 20}, DType::u8);
      const auto flood = [&] {
        for (int i = 0; i < 5; ++i) request->send(1, much, {"flood", i});
      };
      EXPECT_EQ(said_of(flood), "no memory");
      heard = true;
    }
    request = nullptr;  // and with the request all its pending messages
    barrier(world);
  });
}

TEST(Communicator, ALostRankEndsTheWorldAndNotItsRequestAlone) {
  EXPECT_THROW(threads::run(2, 10s,
                            [](Communicator& world) {
                              const auto request = world.request();
                              if (world.rank() == 1)
                                request->fail_all({ErrorCode::rank, "rank 1 was lost"});
                              EXPECT_FALSE(request->failed());
                              barrier(world);
                              barrier(world);
                            }),
               Error);
}

TEST(Communicator, AMessageDoesNotWaitForThoseBeforeIt) {
  ScriptedTransport scripted(2);
  const auto world =
      Communicator::world(std::shared_ptr<Transport>(&scripted, [](Transport*) {}), 10s);
  Pending bulk = world->receive(1, {"bulk", 0}), small = world->receive(1, {"small", 0});
  Message message{{"small", 0}, Tensor::zeros({1}, DType::u8)};
  message.order = 1;
  scripted.inbox().deliver(1, 1, message);
  EXPECT_TRUE(small.done());
  EXPECT_FALSE(bulk.done());
  EXPECT_EQ(small.wait().bytes(), 1);
}

TEST(Communicator, AFlightEndsWhenTheMessageArrives) {
  ScriptedTransport scripted(2);
  const auto world =
      Communicator::world(std::shared_ptr<Transport>(&scripted, [](Transport*) {}), 10s);
  Pending pending = world->receive(1, {"x", 0});
  std::this_thread::sleep_for(20ms);
  scripted.inbox().deliver(1, 1, {{"x", 0}, Tensor::zeros({1}, DType::u8)});
  std::this_thread::sleep_for(200ms);  // the message waits while this rank computes
  pending.wait();
  const auto entry = world->ledger().total();
  EXPECT_GE(entry.flight_seconds, 0.02);
  EXPECT_LT(entry.wait_seconds, 0.02 + entry.flight_seconds);
  const auto begin = std::chrono::steady_clock::now();
  pending = world->receive(1, {"x", 0});
  Message early{{"x", 0}, Tensor::zeros({1}, DType::u8)};
  early.order = 1;
  scripted.inbox().deliver(1, 1, early);
  const double passed =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::this_thread::sleep_for(300ms);
  pending.wait();
  EXPECT_LE(world->ledger().total().flight_seconds - entry.flight_seconds, 0.2 + passed)
      << "the 0.3 s behind the arrival do not count";
}

TEST(Communicator, CountsBytesOfGroupsToo) {
  threads::run(3, 10s, [](Communicator& world) {
    const auto part = world.group({2, 1, 0});
    part->send((part->rank() + 1) % 3, Tensor::zeros({7}, DType::f32), {"ring", 4});
    part->receive((part->rank() + 2) % 3, {"ring", 4}).wait();
    EXPECT_EQ(world.ledger().entries().at({"ring", 4}).bytes, 28);
  });
}

}  // namespace
}  // namespace tessera::comm
