#include "tensor/scope.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace tessera::tensor {
namespace {

TEST(Scope, BindsNestAndEnd) {
  EXPECT_EQ(current_scope().meter, nullptr);
  Scope outer, inner;
  outer.meter = std::make_shared<Meter>();
  {
    const BindScope a(outer);
    EXPECT_EQ(current_scope().meter, outer.meter);
    {
      const BindScope b(inner);
      EXPECT_EQ(current_scope().meter, nullptr);
    }
    EXPECT_EQ(current_scope().meter, outer.meter);
  }
  EXPECT_EQ(current_scope().meter, nullptr);
}

TEST(Scope, MeterAddsByOp) {
  Meter meter;
  meter.add("a", 10, 1);
  meter.add("a", 5, 2);
  meter.add("b", 1, 1);
  EXPECT_EQ(meter.entries().at("a").calls, 2);
  EXPECT_EQ(meter.total().flops, 16);
  EXPECT_EQ(meter.total().bytes, 4);
}

TEST(Scope, AMeterOfARankCountsForTheWholeToo) {
  const auto whole = std::make_shared<Meter>();
  Meter one(whole), two(whole);
  one.add("a", 10, 1);
  two.add({{"a", {2, 5, 2}}});
  EXPECT_EQ(one.total().flops, 10);
  EXPECT_EQ(two.total().flops, 5);
  EXPECT_EQ(whole->total().flops, 15);
  EXPECT_EQ(whole->total().calls, 3);
}

TEST(Scope, WorkRunsWithAndWithoutAPool) {
  for (int threads : {0, 1, 3}) {
    std::unique_ptr<base::ThreadPool> pool;
    Scope scope;
    if (threads) pool = std::make_unique<base::ThreadPool>(threads);
    scope.pool = pool.get();
    const BindScope bind(scope);
    EXPECT_EQ(thread_count(), std::max(threads, 1));
    std::vector<int> seen(100);
    parallel_for(100, 3, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
    });
    parallel_tasks(100, [&](int64_t i) { ++seen[static_cast<size_t>(i)]; });
    EXPECT_EQ(seen, std::vector<int>(100, 2));
  }
}

}  // namespace
}  // namespace tessera::tensor
