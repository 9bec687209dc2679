#include "comm/communicator.h"

#include <gtest/gtest.h>

#include "comm/threads/launch.h"

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
