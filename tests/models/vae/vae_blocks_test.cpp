#include "models/vae/vae_blocks.h"

#include <gtest/gtest.h>

#include "models/vae/random_weights.h"
#include "nn/local_spatial.h"
#include "ops/elementwise.h"

namespace tessera::models {
namespace {

using tensor::DType;
using tensor::Tensor;

void expect_near(const Tensor& a, const Tensor& b, double bound) {
  const std::vector<float> x = a.to_floats(), y = b.to_floats();
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], bound) << "element " << i;
}

TEST(VaeBlocks, ResnetEqualsItsStepsOneByOne) {
  const RandomWeights weights;
  const VaeLoader load{weights, DType::f32, 4};
  nn::LocalSpatial spatial;
  for (int64_t out : {8, 16}) {
    const Tensor x = weights.get("x", {2, 5, 6, 8});
    auto norm = [&](const Tensor& t, const std::string& name, int64_t channels) {
      const nn::GroupNorm n = load.norm(name, channels);
      return ops::group_norm(t, 4, n.weight, n.bias, n.eps, true);
    };
    Tensor h = ops::conv2d(norm(x, "r.norm1", 8), load.conv("r.conv1", out, 8, 3), same_size());
    h = ops::conv2d(norm(h, "r.norm2", out), load.conv("r.conv2", out, out, 3), same_size());
    const Tensor skip = out == 8 ? x : ops::conv2d(x, load.conv("r.conv_shortcut", out, 8, 1), {});
    const Tensor want = ops::add(skip, h);
    const VaeResnet resnet(load, "r", 8, out);
    expect_near(resnet({weights.get("x", {2, 5, 6, 8}), 5, 0}, spatial).data, want, 1e-4);
  }
}

TEST(VaeBlocks, AttentionTakesOldNames) {
  const RandomWeights now, before(tensor::Device::cpu, true);
  nn::LocalSpatial spatial;
  const nn::Plane x{now.get("x", {1, 3, 2, 8}), 3, 0};
  const VaeAttention a({now, DType::f32, 4}, "a", 8), b({before, DType::f32, 4}, "a", 8);
  const Tensor y = a(x, spatial).data, z = b(x, spatial).data;
  EXPECT_EQ(y.shape(), x.data.shape());
  EXPECT_NE(y.to_floats(), z.to_floats());  // other names, other weights
}

TEST(VaeBlocks, ChannelOrdersAreInverse) {
  const RandomWeights weights;
  const Tensor x = weights.get("x", {2, 3, 4, 5});
  const Tensor last = channels_last(x, DType::f32);
  EXPECT_EQ(last.shape(), tensor::Shape({2, 4, 5, 3}));
  EXPECT_EQ(last.data<float>()[1], x.data<float>()[20]);
  EXPECT_EQ(channels_first(last).to_floats(), x.to_floats());
}

}  // namespace
}  // namespace tessera::models
