#include "runtime/adapters.h"

#include <gtest/gtest.h>

namespace tessera::runtime {

TEST(Adapters, WithoutChangesWeightsStayThemselves) {
  const Adapters none;
  EXPECT_FALSE(none.change("transformer"));
  EXPECT_EQ(none.over("transformer", nullptr, tensor::Device::cpu), nullptr);
}

}  // namespace tessera::runtime
