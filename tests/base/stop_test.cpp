#include "base/stop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/stopwatch.h"
#include "base/thread_pool.h"
#include "tessera/error.h"

namespace tessera::base {
namespace {

TEST(Stop, IsThatOfTheThreadWhileItIsBound) {
  std::stop_source source;
  check_stop();
  {
    const BindStop bind(source.get_token());
    check_stop();
    source.request_stop();
    EXPECT_THROW(check_stop(), Error);
    {
      const BindStop none{std::stop_token()};
      check_stop();
    }
    EXPECT_THROW(check_stop(), Error);
    std::thread([] { check_stop(); }).join();
  }
  check_stop();
}

// Tasks after the stop do not begin, on one thread and on several, and the pool remains usable.
TEST(Stop, EndsTheJobOfAPool) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::stop_source source;
    std::atomic<int> done{0};
    {
      const BindStop bind(source.get_token());
      try {
        pool.run(1000, [&](int64_t) {
          const int number = ++done;
          if (number == 5) source.request_stop();
          while (number > 5 && !source.stop_requested()) std::this_thread::yield();
        });
        ADD_FAILURE() << "nothing was stopped";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::cancelled);
      }
      EXPECT_LT(done, 5 + threads);
    }
    done = 0;
    pool.run(10, [&](int64_t) { ++done; });
    EXPECT_EQ(done, 10);
  }
}

// A task of many seconds ends, too, on any thread of the pool.
TEST(Stop, ReachesTasksThatAsk) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    std::stop_source source;
    const BindStop bind(source.get_token());
    std::atomic<int> begun{0}, gone_on{0};
    const auto task = [&](int64_t) {
      ++begun;  // all threads are inside before any may end
      const Stopwatch clock;
      while (begun < threads && clock.seconds() < 30) std::this_thread::yield();
      source.request_stop();
      check_stop();
      ++gone_on;
    };
    EXPECT_THROW(pool.run(threads + 1, task), Error);
    EXPECT_EQ(begun, threads);
    EXPECT_EQ(gone_on, 0);
  }
}

}  // namespace
}  // namespace tessera::base
