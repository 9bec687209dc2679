#include "fused/symmetric_heap.h"

#include <gtest/gtest.h>

#include "base/stop.h"
#include "comm/threads/launch.h"
#include "fused/open_heap.h"
#include "tessera/error.h"

namespace tessera::fused {
namespace {

using namespace std::chrono_literals;

// The error of rank 0, waiting forever while rank 1 does something else.
std::pair<ErrorCode, std::string> said(std::chrono::milliseconds deadline,
                                       const std::function<void()>& other,
                                       const std::stop_token& stop = {}) {
  try {
    comm::threads::run(2, deadline, [&](comm::Communicator& world) {
      const base::BindStop bound(stop);
      const auto heap = open_heap(world, {4096, 4096, 4096}, tensor::Device::cpu);
      if (world.rank() == 0)
        heap->wait(128, 7);
      else
        other();
    });
  } catch (const Error& e) {
    return {e.code(), e.what()};
  }
  return {ErrorCode::usage, "nothing"};
}

TEST(SymmetricHeap, AWaitEndsAtTheDeadlineAndSaysForWhat) {
  EXPECT_EQ(said(100ms, [] {}),
            std::pair(ErrorCode::rank,
                      std::string("rank 0 waits for the word at 128 of its memory to be 7; it is "
                                  "0, and no rank got on in 0.1 s")));
}

TEST(SymmetricHeap, AWaitEndsWithTheWorldAndWithAStop) {
  EXPECT_EQ(said(60s, [] { throw Error(ErrorCode::model, "no numbers"); }),
            std::pair(ErrorCode::model, std::string("no numbers")));
  std::stop_source source;
  EXPECT_EQ(said(
                60s, [&] { source.request_stop(); }, source.get_token())
                .first,
            ErrorCode::cancelled);
}

}  // namespace
}  // namespace tessera::fused
