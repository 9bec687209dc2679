#include "server/work_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

namespace tessera::server {
namespace {

TEST(WorkPool, DoesAllWork) {
  std::atomic<int> done = 0;
  std::promise<void> all;
  WorkPool pool(3);
  for (int i = 0; i < 300; ++i)
    pool.add(std::to_string(i % 7), [&] {
      if (++done == 300) all.set_value();
    });
  all.get_future().wait();
  EXPECT_EQ(done, 300);
}

TEST(WorkPool, OneClientLeavesAThreadToOthers) {
  std::promise<void> open, other;
  const std::shared_future<void> gate = open.get_future().share();
  WorkPool pool(3);
  for (int i = 0; i < 50; ++i) pool.add("greedy", [gate] { gate.wait(); });
  pool.add("modest", [&] { other.set_value(); });
  const auto came = other.get_future().wait_for(std::chrono::seconds(60));
  open.set_value();
  EXPECT_EQ(came, std::future_status::ready);
}

TEST(WorkPool, ClientsTakeTurns) {
  std::promise<void> open, begun, all;
  std::vector<std::string> order;
  WorkPool pool(1);
  pool.add("first", [&] {
    begun.set_value();
    open.get_future().wait();
  });
  begun.get_future().wait();
  for (const char* client : {"anna", "anna", "anna", "berta", "zoe"})
    pool.add(client, [&, client] {
      order.emplace_back(client);
      if (order.size() == 5) all.set_value();
    });
  open.set_value();
  all.get_future().wait();
  EXPECT_EQ(order, (std::vector<std::string>{"zoe", "anna", "berta", "anna", "anna"}));
}

TEST(WorkPool, ClosingWaitsForWhatRuns) {
  std::atomic<int> done = 0;
  std::promise<void> begun;
  {
    WorkPool pool(1);
    pool.add("a", [&] {
      begun.set_value();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ++done;
    });
    for (int i = 0; i < 100; ++i) pool.add("a", [&] { done += 1000; });
    begun.get_future().wait();
    pool.close();
    pool.add("a", [&] { done += 1000; });
  }
  EXPECT_EQ(done, 1);
}

}  // namespace
}  // namespace tessera::server
