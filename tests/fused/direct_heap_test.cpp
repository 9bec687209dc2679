#include "fused/direct_heap.h"

#include <gtest/gtest.h>

#include "comm/simulated/launch.h"
#include "comm/threads/launch.h"
#include "fused/delayed_heap.h"
#include "fused/heap_conformance.h"
#include "tessera/error.h"

namespace tessera::fused {
namespace {

using namespace std::chrono_literals;

const HeapSize kAll{kHeapBytes, kHeapBytes, kHeapBytes};

TEST(DirectHeap, ThreadsPassTheSuite) {
  for (const int ranks : {1, 2, 3, 8})
    for (const HeapCase& one : heap_cases())
      comm::threads::run(ranks, 60s, [&](comm::Communicator& world) {
        const auto heap = open_heap(world, kAll, tensor::Device::cpu);
        EXPECT_NO_THROW(one.body(*heap)) << one.name;
      });
}

// The double that other tests use is a heap, too.
TEST(DelayedHeap, PassesTheSuite) {
  for (const uint32_t seed : {1u, 2u, 3u})
    for (const HeapCase& one : heap_cases())
      comm::threads::run(3, 60s, [&](comm::Communicator& world) {
        const auto heap = open_heap(world, kAll, tensor::Device::cpu);
        DelayedHeap late(*heap, seed + uint32_t(world.rank()));
        EXPECT_NO_THROW(one.body(late)) << one.name;
      });
}

TEST(DirectHeap, OnlyWhatIsAskedForBeginsAsZero) {
  comm::threads::run(2, 60s, [&](comm::Communicator& world) {
    const auto heap = open_heap(world, {4096, 64, 4000}, tensor::Device::cpu);
    for (const int64_t i : {0, 63, 4000, 4095}) EXPECT_EQ(heap->memory()[i], std::byte{0}) << i;
  });
}

// Memory that a peer may still write is there for as long as the peer.
TEST(DirectHeap, MemoryOutlivesItsRank) {
  comm::threads::run(2, 60s, [&](comm::Communicator& world) {
    auto heap = open_heap(world, kAll, tensor::Device::cpu);
    if (world.rank() == 0) heap.reset();
    comm::barrier(world);
    if (world.rank() == 1) heap->put_signal(to_peer(*heap, 0, 100, 0, 1));
  });
}

// A rank's buffers, not its peers'; the same on meta.
TEST(DirectHeap, ItsMemoryCountsOnce) {
  for (const tensor::Device where : {tensor::Device::cpu, tensor::Device::meta}) {
    std::vector<tensor::Scope> scopes(3);
    for (tensor::Scope& scope : scopes) scope.memory = std::make_shared<tensor::MemoryTracker>();
    comm::simulated::run(scopes, 60s, [&](comm::Communicator& world) {
      const auto heap = open_heap(world, kAll, where);
      const tensor::MemoryTracker& memory = *tensor::current_scope().memory;
      EXPECT_EQ(memory.current(tensor::MemoryClass::buffers), kHeapBytes);
      EXPECT_EQ(memory.peak(), kHeapBytes);
      EXPECT_EQ(world.ledger().total().bytes, 2 * (16 + 8)) << "what is said while it is made";
    });
    for (const tensor::Scope& scope : scopes) EXPECT_EQ(scope.memory->current(), 0);
  }
}

}  // namespace
}  // namespace tessera::fused
