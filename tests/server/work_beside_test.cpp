#include "server/work_beside.h"

#include <gtest/gtest.h>

#include <semaphore>
#include <stdexcept>
#include <thread>

namespace tessera::server {
namespace {

using namespace std::chrono_literals;

TEST(WorkBeside, BeatsForAsLongAsTheWorkTakes) {
  std::counting_semaphore<> beats(0);
  int heard = 0;
  const auto here = std::this_thread::get_id();
  const auto work = [&] {
    EXPECT_NE(std::this_thread::get_id(), here);
    for (; heard < 3; ++heard) beats.acquire();  // ends only after this many
  };
  work_beside(work, 1ms, [&] {
    EXPECT_EQ(std::this_thread::get_id(), here);
    beats.release();
  });
  EXPECT_EQ(heard, 3);
}

TEST(WorkBeside, ThrowsWhatTheWorkThrows) {
  const auto fails = [] { throw std::runtime_error("no room"); };
  EXPECT_THROW(work_beside(fails, 1h, [] {}), std::runtime_error);
}

TEST(WorkBeside, ABeatThatThrowsWaitsForTheWork) {
  std::counting_semaphore<> begun(0);
  bool ended = false;
  const auto work = [&] {
    begun.acquire();
    ended = true;
  };
  EXPECT_THROW(work_beside(work, 1ms,
                           [&] {
                             begun.release();
                             throw std::runtime_error("the ranks are lost");
                           }),
               std::runtime_error);
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace tessera::server
