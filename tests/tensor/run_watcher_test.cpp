#include "tensor/run_watcher.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tensor/scope.h"

namespace tessera::tensor {
namespace {

class Listed final : public RunWatcher {
 public:
  RunWatcher* of_rank(int rank) override { return rank == 0 ? this : nullptr; }
  void op(const char* kind, double, double, const OpSize& size) override {
    said.push_back(std::string(kind) + " " + std::to_string(size.rows));
  }
  void sends(int, uint64_t, int64_t, const char*, int, int64_t) override {}
  void expects(int, uint64_t, uint64_t) override {}
  void waits(int, uint64_t, uint64_t) override {}
  void part(const char* name, int number) override {
    said.push_back(name + std::to_string(number));
  }
  std::vector<std::string> said;
};

TEST(RunWatcher, HearsOpsAndPartsWhileItIsBound) {
  Listed watcher;
  const Tensor x = Tensor::empty({3, 5}, DType::bf16, Device::meta);
  count_op("add", 1, 2, op_size(x));
  EXPECT_FALSE(counts_ops());
  {
    const BindRunWatcher bind(&watcher);
    EXPECT_TRUE(counts_ops());
    watch_part("step", 2);
    count_op("add", 1, 2, op_size(x));
  }
  count_op("add", 1, 2, op_size(x));
  EXPECT_EQ(watcher.said, (std::vector<std::string>{"step2", "add 3"}));
}

TEST(RunWatcher, OpsAreMeteredWithAndWithoutOne) {
  Listed watcher;
  Scope scope;
  scope.meter = std::make_shared<Meter>();
  const BindScope bind(scope);
  count_op("matmul", 7, 2, {});
  const BindRunWatcher watching(&watcher);
  count_op("matmul", 7, 2, {});
  EXPECT_EQ(scope.meter->total().flops, 14);
}

TEST(RunWatcher, SizesKeepTheLastAxisApart) {
  const OpSize size = op_size(Tensor::empty({2, 3, 4}, DType::f32, Device::meta));
  EXPECT_EQ(size.rows, 6);
  EXPECT_EQ(size.columns, 4);
}

}  // namespace
}  // namespace tessera::tensor
