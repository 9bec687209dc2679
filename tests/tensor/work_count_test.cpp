#include "tensor/work_count.h"

#include <gtest/gtest.h>

#include "tensor/scope.h"

namespace tessera::tensor {
namespace {

TEST(WorkCount, TasksOfAllThreadsCountForWhoAskedForThem) {
  base::ThreadPool pool(3);
  Scope scope;
  scope.pool = &pool;
  const BindScope bound(scope);
  WorkCount count{0};
  parallel_tasks(10, [](int64_t) {});
  EXPECT_EQ(count, 0u) << "nobody watches";
  {
    const BindWorkCount watched(&count);
    parallel_tasks(10, [](int64_t) {});
    EXPECT_EQ(count, 10u);
    const uint64_t before = count;
    parallel_for(100000, 1, [](int64_t, int64_t) {});
    EXPECT_GT(count, before);
    const uint64_t now = count;
    count_work();
    EXPECT_EQ(count, now + 1);
    const BindWorkCount none(nullptr);
    count_work();
    EXPECT_EQ(count, now + 1);
  }
  EXPECT_EQ(work_count(), nullptr);
}

TEST(WorkCount, WithoutAPoolWorkCountsToo) {
  WorkCount count{0};
  const BindWorkCount watched(&count);
  parallel_tasks(4, [](int64_t) {});
  parallel_for(100, 1, [](int64_t, int64_t) {});
  EXPECT_EQ(count, 5u);
}

}  // namespace
}  // namespace tessera::tensor
