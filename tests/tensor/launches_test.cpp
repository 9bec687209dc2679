#include "tensor/launches.h"

#include <gtest/gtest.h>

namespace tessera::tensor {
namespace {

TEST(Launches, AreCountedByKernelAndAreNoWork) {
  count_launch("nobody counts");
  Scope scope;
  scope.meter = std::make_shared<Meter>();
  {
    const BindScope bind(scope);
    count_launch("experts");
    count_launch("norm");
    count_launch("experts");
    scope.meter->add("norm", 7, 8);
  }
  EXPECT_EQ(launches_of(scope.meter->entries()),
            (std::map<std::string, int64_t>{{"experts", 2}, {"norm", 1}}));
  EXPECT_EQ(scope.meter->total().flops, 7);
  scope.meter->add(scope.meter->entries());  // as a replay does
  EXPECT_EQ(launches_of(scope.meter->entries()).at("experts"), 4);
}

}  // namespace
}  // namespace tessera::tensor
