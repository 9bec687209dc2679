#include "kernels/table.h"

#include <gtest/gtest.h>

namespace tessera::kernels {
namespace {

TEST(CudaTable, IsTheTableOfTheDevice) {
  EXPECT_EQ(&table_of(tensor::Device::cuda), &cuda_table());
  EXPECT_EQ(&table_of(tensor::Device::cpu), &cpu_table());
}

TEST(CudaTable, HoldsEveryKernelButThoseForOneToken) {
  const KernelTable& t = cuda_table();
  EXPECT_TRUE(t.matmul && t.experts && t.combine && t.attention && t.conv);
  EXPECT_TRUE(t.norm && t.elementwise && t.rope && t.route && t.copy && t.move_rows && t.waves);
  EXPECT_TRUE(t.channel_moments && t.channel_affine && t.group_scale_shift);
  EXPECT_TRUE(t.expert_votes && t.coresets && t.choose_inside);
  EXPECT_TRUE(t.magnitudes && t.token_fates && t.drop_tail);
  EXPECT_TRUE(t.plane_affine && t.biased_attention);
  EXPECT_TRUE(t.linear_step && t.learned_range_step && t.flow_step && t.guide);
  EXPECT_TRUE(t.peaks && t.all_finite);
  EXPECT_EQ(t.router_scores, nullptr);  // route() takes all tokens at once
  EXPECT_EQ(t.top_k, nullptr);
}

}  // namespace
}  // namespace tessera::kernels
