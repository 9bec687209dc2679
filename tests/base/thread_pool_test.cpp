#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tessera/error.h"

namespace tessera::base {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(round));
      pool.run(round, [&](int64_t i) { ++seen[static_cast<size_t>(i)]; });
      for (auto& count : seen) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, RangesCoverWithoutOverlap) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> seen(1000);
  pool.parallel_for(1000, 7, [&](int64_t begin, int64_t end) {
    EXPECT_GE(end - begin, 7);
    for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
  });
  for (auto& count : seen) ASSERT_EQ(count, 1);
  pool.parallel_for(0, 7, [](int64_t, int64_t) { FAIL(); });
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolLivesOn) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(pool.run(50,
                          [](int64_t i) {
                            if (i == 17) throw std::runtime_error("17");
                          }),
                 std::runtime_error);
    std::atomic<int> sum{0};
    pool.run(10, [&](int64_t i) { sum += int(i); });
    EXPECT_EQ(sum, 45);
  }
}

TEST(ThreadPool, NestedJobsRunOnTheirThread) {
  ThreadPool pool(4);
  std::atomic<int> count{0};
  pool.run(8, [&](int64_t) {
    const auto me = std::this_thread::get_id();
    pool.run(5, [&](int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), me);
      ++count;
    });
  });
  EXPECT_EQ(count, 40);
}

TEST(ThreadPool, AGangRunsAtOnce) {
  ThreadPool pool(1);
  std::atomic<int> arrived{0};
  pool.gang(4, [&](int) {
    ++arrived;
    while (arrived < 4) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 4);
  EXPECT_THROW(pool.gang(3,
                         [](int i) {
                           if (i == 2) throw std::runtime_error("2");
                         }),
               std::runtime_error);
}

TEST(ThreadPool, RefusesNoThreads) { EXPECT_THROW(ThreadPool(0), Error); }

TEST(ThreadPool, AJobDoesNotWaitForThatOfAnotherThread) {
  ThreadPool pool(2);
  std::atomic<bool> begun{false}, done{false};
  std::atomic<int> ran{0};
  std::thread other([&] {
    pool.run(2, [&](int64_t) {
      begun = true;
      while (!done) std::this_thread::yield();
    });
  });
  while (!begun) std::this_thread::yield();
  pool.run(8, [&](int64_t) { ++ran; });  // would wait for itself
  EXPECT_EQ(ran, 8);
  EXPECT_THROW(pool.run(8,
                        [&](int64_t i) {
                          if (i == 3) throw std::runtime_error("third");
                        }),
               std::runtime_error);
  done = true;
  other.join();
}

}  // namespace
}  // namespace tessera::base
