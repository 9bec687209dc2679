#include "ops/packing.h"

#include <gtest/gtest.h>

#include "kernels/isa.h"

namespace tessera::ops {
namespace {

TEST(Packing, FollowsTheInstructionSetOnTheHostAlone) {
  EXPECT_EQ(packing_of(tensor::Device::cpu), static_cast<uint8_t>(kernels::active_isa()));
  EXPECT_EQ(packing_of(tensor::Device::cuda), packing_of(tensor::Device::meta));
}

}  // namespace
}  // namespace tessera::ops
