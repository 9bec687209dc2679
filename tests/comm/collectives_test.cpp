#include "comm/collectives.h"

#include <gtest/gtest.h>

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

TEST(Collectives, OnlyF32IsSummed) {
  threads::run(1, 10s, [](Communicator& world) {
    EXPECT_THROW(sum(world, Tensor::zeros({1}, DType::bf16), {"x", 0}), Error);
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
