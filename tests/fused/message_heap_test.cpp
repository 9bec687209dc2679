#include "fused/message_heap.h"

#include <gtest/gtest.h>

#include <cstring>

#include "comm/collectives.h"
#include "comm/shuffled_transport.h"
#include "comm/threads/launch.h"
#include "fused/delayed_heap.h"
#include "fused/heap_conformance.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::fused {
namespace {

using namespace std::chrono_literals;
using tensor::Tensor;

// Ranks with equal numbers share memory; others are elsewhere.
void on_hosts(comm::Communicator& world, const std::vector<int>& hosts,
              const std::function<void(SymmetricHeap&)>& body) {
  const Tensor mine = Tensor::zeros({kHeapBytes}, tensor::DType::u8);
  std::vector<Tensor> parts = comm::all_gather(world, mine, {"memory", -1}).wait();
  for (size_t r = 0; r < parts.size(); ++r)
    if (hosts[r] != hosts[static_cast<size_t>(world.rank())]) parts[r] = {};
  parts[static_cast<size_t>(world.rank())] = mine;
  MessageHeap heap(world, parts);
  comm::barrier(world);
  body(heap);
}

void suite_on(comm::Communicator& world, const std::vector<int>& hosts) {
  for (const HeapCase& one : heap_cases())
    EXPECT_NO_THROW(on_hosts(world, hosts, one.body)) << one.name;
}

TEST(MessageHeap, HostsOfARankPassTheSuite) {
  for (const int ranks : {1, 2, 3, 8})
    comm::threads::run(ranks, 60s, [&](comm::Communicator& world) {
      suite_on(world, {0, 1, 2, 3, 4, 5, 6, 7});
    });
}

TEST(MessageHeap, HostsOfSeveralRanksPassTheSuite) {
  comm::threads::run(5, 60s, [](comm::Communicator& world) { suite_on(world, {0, 1, 0, 1, 1}); });
}

// A transport may let messages overtake each other.
TEST(MessageHeap, PassesTheSuiteWhereMessagesOvertake) {
  comm::threads::run(3, 60s, [](comm::Communicator& world) {
    const auto shuffled =
        world.over([](auto below, auto) { return comm::shuffled(std::move(below), 500us); });
    suite_on(*shuffled, {0, 1, 2});
  });
}

// Messages after the end of the heap are dropped.
TEST(MessageHeap, AnswersNobodyWhenItHasGone) {
  comm::threads::run(2, 60s, [](comm::Communicator& world) {
    const Tensor mine = Tensor::zeros({kHeapBytes}, tensor::DType::u8);
    std::vector<Tensor> parts(2);
    parts[static_cast<size_t>(world.rank())] = mine;
    auto heap = std::make_unique<MessageHeap>(world, parts);
    comm::barrier(world);
    if (world.rank() == 0) heap.reset();
    comm::barrier(world);
    if (world.rank() == 1) heap->put_signal(to_peer(*heap, 0, 100, 0, 7));
    comm::barrier(world);
    EXPECT_EQ(*static_cast<const uint64_t*>(mine.raw()), 0u);
  });
}

// Messages of the heap count neither as memory of a rank nor in its ledger, which holds the rows of
// a layer.
TEST(MessageHeap, CountsNothing) {
  comm::threads::run(2, 60s, [](comm::Communicator& world) {
    tensor::Scope scope = tensor::current_scope();
    scope.memory = std::make_shared<tensor::MemoryTracker>();
    const tensor::BindScope bound(scope);
    std::vector<Tensor> parts(2);
    parts[static_cast<size_t>(world.rank())] = Tensor::zeros({kHeapBytes}, tensor::DType::u8);
    MessageHeap heap(world, parts);
    comm::barrier(world);
    const int64_t messages = world.ledger().total().messages;
    heap.put_signal(to_peer(heap, 1 - heap.rank(), 1000, heap.rank(), 5));
    heap.wait(int64_t{8} * (1 - heap.rank()), 5);
    EXPECT_EQ(world.ledger().total().messages, messages);
    EXPECT_EQ(scope.memory->peak(), kHeapBytes) << "its part alone";
    comm::barrier(world);
  });
}

// A place outside the memory, a misaligned word or an invalid message ends the run before any
// write.
TEST(MessageHeap, RefusesWhatCannotBeWritten) {
  const Transfer good{0, 16, kLeaves, kWords, 8, 1};
  const auto with = [&](auto member, int64_t value) {
    Transfer bad = good;
    bad.*member = value;
    return bad;
  };
  for (const Transfer& bad :
       {with(&Transfer::at, -1), with(&Transfer::at, kHeapBytes - 15),
        with(&Transfer::at, INT64_MAX), with(&Transfer::word, -8), with(&Transfer::word, 12),
        with(&Transfer::word, kHeapBytes), with(&Transfer::word, INT64_MIN)}) {
    try {
      comm::threads::run(2, 60s, [&](comm::Communicator& world) {
        on_hosts(world, {0, 1}, [&](SymmetricHeap& heap) {
          if (heap.rank() == 1) heap.put_signal(bad);
          heap.wait(8, 1);
        });
      });
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::rank);
      EXPECT_NE(std::string(e.what()).find("rank 1 sent 16 bytes for place"), std::string::npos)
          << e.what();
    }
  }
}

}  // namespace
}  // namespace tessera::fused
