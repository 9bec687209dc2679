#pragma once

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/fail.h"
#include "comm/collectives.h"
#include "fused/symmetric_heap.h"

namespace tessera::fused {

// Requirements of every heap: each case runs on all ranks of a heap of kHeapBytes zeros, and throws
// if the heap fails.
inline constexpr int64_t kHeapBytes = 1 << 20;
// Layout of each rank's memory: words first, then a part for each of 8 senders, then outgoing
// bytes.
inline constexpr int64_t kPart = 64 << 10, kWords = 64 << 10, kLeaves = kWords + 8 * kPart;

inline void check_heap(bool good, const char* what) {
  require(good, ErrorCode::rank, "heap: {}", what);
}

inline Transfer to_peer(const SymmetricHeap& heap, int to, int64_t bytes, int word,
                        uint64_t value) {
  return {to, bytes, kLeaves, kWords + heap.rank() * kPart, int64_t{8} * word, value};
}

inline void begins_as_zero(SymmetricHeap& heap) {
  check_heap(reinterpret_cast<uintptr_t>(heap.memory()) % 64 == 0, "memory is not aligned");
  for (int64_t i = 0; i < kHeapBytes; ++i)
    check_heap(heap.memory()[i] == std::byte{0}, "memory is not zero");
  comm::barrier(heap.ranks());
}

// Rounds of bytes to all ranks; each rank answers after reading, and only then are other bytes
// written.
inline void words_follow_their_bytes(SymmetricHeap& heap) {
  const int me = heap.rank(), ranks = heap.ranks().size();
  std::mt19937 random(static_cast<uint32_t>(me));
  const auto byte_of = [](int from, uint64_t round, int64_t i) {
    return static_cast<std::byte>(from * 31 + static_cast<int64_t>(round) * 7 + i);
  };
  for (uint64_t round = 1; round <= 200; ++round) {
    const auto size_of_round = [&](int from) {
      return static_cast<int64_t>((static_cast<uint64_t>(from) * 977 + round * 7919) % kPart);
    };
    for (int64_t i = 0; i < size_of_round(me); ++i)
      heap.memory()[kLeaves + i] = byte_of(me, round, i);
    for (int to = 0; to < ranks; ++to)
      if (to != me) heap.put_signal(to_peer(heap, to, size_of_round(me), me, round));
    for (int from = 0; from < ranks; ++from) {
      if (from == me) continue;
      heap.wait(int64_t{8} * from, round);
      const std::byte* const got = heap.memory() + kWords + from * kPart;
      for (int64_t i = 0; i < size_of_round(from); ++i)
        check_heap(got[i] == byte_of(from, round, i), "bytes are not there with their word");
      heap.put_signal(to_peer(heap, from, 0, 8 + me, round));
    }
    for (int from = 0; from < ranks; ++from)
      if (from != me) heap.wait(int64_t{8} * (8 + from), round);
  }
  comm::barrier(heap.ranks());
}

// Several puts, followed by a word.
inline void a_signal_comes_behind_what_was_put(SymmetricHeap& heap) {
  const int me = heap.rank(), ranks = heap.ranks().size(), next = (me + 1) % ranks,
            before = (me + ranks - 1) % ranks;
  for (uint64_t round = 1; round <= 200; ++round) {
    std::memset(heap.memory() + kLeaves, static_cast<int>(round & 0xff), 4096);
    for (int64_t piece = 0; piece < 16; ++piece) {
      Transfer t = to_peer(heap, next, 256, 0, 0);
      t.from += piece * 256;
      t.at += piece * 256;
      heap.put(t);
    }
    heap.signal(to_peer(heap, next, 0, 32, round));
    heap.wait(int64_t{8} * 32, round);
    for (int64_t i = 0; i < 4096; ++i)
      check_heap(heap.memory()[kWords + before * kPart + i] == static_cast<std::byte>(round),
                 "a signal came before what was put");
    heap.signal(to_peer(heap, before, 0, 33, round));
    heap.wait(int64_t{8} * 33, round);
  }
  comm::barrier(heap.ranks());
}

struct HeapCase {
  std::string name;
  std::function<void(SymmetricHeap& heap)> body;
};
inline std::vector<HeapCase> heap_cases() {
  return {{"begins as zero", begins_as_zero},
          {"words follow their bytes", words_follow_their_bytes},
          {"a signal comes behind what was put", a_signal_comes_behind_what_was_put}};
}

}  // namespace tessera::fused
