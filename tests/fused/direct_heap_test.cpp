#include "fused/direct_heap.h"

#include <gtest/gtest.h>

#include "comm/threads/launch.h"
#include "fused/queue.h"

namespace tessera::fused {
namespace {

using namespace std::chrono_literals;
using tensor::Tensor;

// Ranks of two parts: here this rank owns both. A put is complete when the call returns.
TEST(DirectHeap, WritesTheMemoryOfTheOther) {
  comm::threads::run(1, 60s, [](comm::Communicator& world) {
    const std::vector<Tensor> parts{Tensor::zeros({256}, tensor::DType::u8),
                                    Tensor::zeros({256}, tensor::DType::u8)};
    DirectHeap heap(world, parts);
    const auto* const there = static_cast<const std::byte*>(parts[1].raw());
    const auto* const word = reinterpret_cast<const uint64_t*>(there);
    heap.memory()[128] = std::byte{7};
    heap.put({1, 1, 128, 200, 0, 3});
    EXPECT_EQ(there[200], std::byte{7});
    EXPECT_EQ(SharedWords::load(word), 0u) << "a put has no word";
    heap.signal({1, 1, 128, 201, 0, 3});
    EXPECT_EQ(there[201], std::byte{0}) << "a signal has no bytes";
    EXPECT_EQ(SharedWords::load(word), 3u);
    heap.put_signal({1, 1, 128, 202, 8, 4});
    EXPECT_EQ(there[202], std::byte{7});
    EXPECT_EQ(SharedWords::load(word + 1), 4u);
  });
}

}  // namespace
}  // namespace tessera::fused
