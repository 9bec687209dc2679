#include "fused/open_heap.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/simulated/launch.h"
#include "comm/threads/launch.h"
#include "fused/delayed_heap.h"
#include "fused/heap_conformance.h"
#include "fused/message_heap.h"
#include "fused/queue.h"
#include "tessera/error.h"

namespace tessera::fused {
namespace {

using namespace std::chrono_literals;

// Sets the environment variable of the kind of heap until destruction.
class Asked {
 public:
  explicit Asked(const char* way) { ::setenv("TESSERA_HEAP", way, 1); }
  ~Asked() { ::unsetenv("TESSERA_HEAP"); }
  Asked(const Asked&) = delete;
  Asked& operator=(const Asked&) = delete;
};

const HeapSize kAll{kHeapBytes, kHeapBytes, kHeapBytes};

TEST(OpenHeap, ThreadsPassTheSuite) {
  for (const int ranks : {1, 2, 3, 8})
    for (const HeapCase& one : heap_cases())
      comm::threads::run(ranks, 60s, [&](comm::Communicator& world) {
        const auto heap = open_heap(world, kAll, tensor::Device::cpu);
        EXPECT_NO_THROW(one.body(*heap)) << one.name;
      });
}

// The heap between hosts; here each rank acts as a separate host.
TEST(OpenHeap, RanksThatAskForMessagesPassTheSuite) {
  const Asked asked("messages");
  for (const int ranks : {1, 3})
    for (const HeapCase& one : heap_cases())
      comm::threads::run(ranks, 60s, [&](comm::Communicator& world) {
        const auto heap = open_heap(world, kAll, tensor::Device::cpu);
        EXPECT_EQ(dynamic_cast<const MessageHeap*>(heap.get()) != nullptr, ranks > 1);
        EXPECT_NO_THROW(one.body(*heap)) << one.name;
      });
}

TEST(OpenHeap, AnotherWordThanMessagesIsRefused) {
  const Asked asked("pigeons");
  try {
    comm::threads::run(1, 60s, [](comm::Communicator& world) {
      (void)open_heap(world, kAll, tensor::Device::cpu);
    });
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    EXPECT_STREQ(e.what(), "TESSERA_HEAP='pigeons': expected messages, or nothing");
  }
}

// The test double is a heap, too.
TEST(DelayedHeap, PassesTheSuite) {
  for (const uint32_t seed : {1u, 2u, 3u})
    for (const HeapCase& one : heap_cases())
      comm::threads::run(3, 60s, [&](comm::Communicator& world) {
        const auto heap = open_heap(world, kAll, tensor::Device::cpu);
        DelayedHeap late(*heap, seed + uint32_t(world.rank()));
        EXPECT_NO_THROW(one.body(late)) << one.name;
      });
}

TEST(OpenHeap, OnlyWhatIsAskedForBeginsAsZero) {
  comm::threads::run(2, 60s, [&](comm::Communicator& world) {
    const auto heap = open_heap(world, {4096, 64, 4000}, tensor::Device::cpu);
    for (const int64_t i : {0, 63, 4000, 4095}) EXPECT_EQ(heap->memory()[i], std::byte{0}) << i;
  });
}

// Memory open to a peer's writes lives as long as the peer's heap.
TEST(OpenHeap, MemoryOutlivesItsRank) {
  comm::threads::run(2, 60s, [&](comm::Communicator& world) {
    auto heap = open_heap(world, kAll, tensor::Device::cpu);
    const auto* const word = reinterpret_cast<const uint64_t*>(heap->memory());
    if (world.rank() == 0) heap.reset();
    comm::barrier(world);
    if (world.rank() == 1) heap->put_signal(to_peer(*heap, 0, 100, 0, 7));
    comm::barrier(world);
    EXPECT_EQ(SharedWords::load(word), world.rank() == 0 ? 7u : 0u);
    comm::barrier(world);
  });
}

// A rank with another model or program would write to unexpected places.
TEST(OpenHeap, RanksThatWantHeapsThatDifferAreRefusedByName) {
  const auto said = [](const HeapSize& one, const HeapSize& other) -> std::string {
    try {
      comm::threads::run(2, 60s, [&](comm::Communicator& world) {
        (void)open_heap(world, world.rank() == 0 ? one : other, tensor::Device::cpu);
      });
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::rank);
      return e.what();
    }
    return "nothing";
  };
  const auto layout = [](int experts, int64_t row_bytes, int64_t tile, int64_t window) {
    return heap_of(Layout::dropless(2, experts, 100, row_bytes, {tile}, window));
  };
  EXPECT_EQ(said(layout(4, 256, 8, 0), layout(4, 256, 8, 0)), "nothing");
  EXPECT_EQ(said(kAll, kAll), "nothing");
  for (const auto& [other, what] :
       {std::pair{layout(3, 256, 8, 0), "experts of a rank"},
        {layout(4, 128, 8, 0), "bytes of a row"},
        {layout(4, 256, 4, 0), "rows of a tile"},
        {layout(4, 256, 8, 2), "rows of a run"},
        {heap_of(Layout::fixed(2, 4, 8, 256, {8})), "rows of an expert"},
        {kAll, "ranks"}}) {
    const std::string says = said(layout(4, 256, 8, 0), other);
    EXPECT_NE(says.find(std::string(" ") + what + ", that of rank "), std::string::npos) << says;
  }
}

// A rank's own buffers count, not its peers'; the same on meta.
TEST(OpenHeap, ItsMemoryCountsOnce) {
  for (const tensor::Device where : {tensor::Device::cpu, tensor::Device::meta}) {
    std::vector<tensor::Scope> scopes(3);
    for (tensor::Scope& scope : scopes) scope.memory = std::make_shared<tensor::MemoryTracker>();
    comm::simulated::run(scopes, 60s, [&](comm::Communicator& world) {
      const auto heap = open_heap(world, kAll, where);
      const tensor::MemoryTracker& memory = *tensor::current_scope().memory;
      EXPECT_EQ(memory.current(tensor::MemoryClass::buffers), kHeapBytes);
      EXPECT_EQ(memory.peak(), kHeapBytes);
      EXPECT_EQ(world.ledger().total().bytes, 2 * (16 + sizeof(HeapSize) + 8))
          << "what is said while it is made";
    });
    for (const tensor::Scope& scope : scopes) EXPECT_EQ(scope.memory->current(), 0);
  }
}

}  // namespace
}  // namespace tessera::fused
