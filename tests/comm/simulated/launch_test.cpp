#include "comm/simulated/launch.h"

#include <gtest/gtest.h>

#include "../conformance.h"
#include "comm/collectives.h"

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;
using tensor::Device;
using tensor::DType;
using tensor::MemoryClass;
using tensor::Tensor;

std::vector<tensor::Scope> scopes(int ranks) {
  std::vector<tensor::Scope> made(static_cast<size_t>(ranks));
  for (tensor::Scope& scope : made) scope.memory = std::make_shared<tensor::MemoryTracker>();
  return made;
}

class SimulatedConformance : public testing::TestWithParam<ConformanceCase> {};

TEST_P(SimulatedConformance, Holds) {
  simulated::run(scopes(GetParam().ranks), 30s, GetParam().body);
}

INSTANTIATE_TEST_SUITE_P(Cases, SimulatedConformance, testing::ValuesIn(conformance_cases()),
                         [](const auto& chosen) {
                           return chosen.param.name + "On" + std::to_string(chosen.param.ranks);
                         });

TEST(Simulated, MessagesOfMetaAreCountedAndAreMemoryOfTheReceiver) {
  const auto all = scopes(3);
  simulated::run(all, 30s, [&](Communicator& world) {
    std::vector<Tensor> messages;
    for (int to = 0; to < 3; ++to)
      messages.push_back(Tensor::empty({1000 * (world.rank() + 1), 1000}, DType::bf16, Device::meta,
                                       MemoryClass::buffers));
    const auto arrived = all_to_all(world, std::move(messages), {"rows", 4}).wait();
    for (int from = 0; from < 3; ++from) {
      EXPECT_TRUE(arrived[size_t(from)].is_meta());
      EXPECT_EQ(arrived[size_t(from)].size(0), 1000 * (from + 1));
    }
    const auto& sent = world.ledger().entries().at({"rows", 4});
    EXPECT_EQ(sent.messages, 2);
    EXPECT_EQ(sent.bytes, 2 * 2000000 * (world.rank() + 1));
    barrier(world);
    // My message to me, and those of two others; my messages to others belong to them.
    EXPECT_EQ(tensor::current_scope().memory->current(MemoryClass::buffers), 12000000);
  });
  // All sent messages, and all received from others.
  EXPECT_EQ(all[0].memory->peak(MemoryClass::buffers), 6000000 + 10000000);
  EXPECT_EQ(all[0].memory->current(MemoryClass::buffers), 0);
}

}  // namespace
}  // namespace tessera::comm
