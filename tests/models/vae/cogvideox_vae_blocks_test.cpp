#include "models/vae/cogvideox_vae_blocks.h"

#include <gtest/gtest.h>

#include "models/vae/random_weights.h"
#include "nn/local_spatial.h"
#include "ops/elementwise.h"

namespace tessera::models {
namespace {

using tensor::DType;
using tensor::Tensor;

Frames counted(const tensor::Shape& shape) {
  Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = static_cast<float>(i % 11) - 5;
  return {x, x.size(1), 0};
}

Frames some(const Frames& x, int64_t begin, int64_t end) {
  return {x.data.slice(0, begin, end), x.height, x.begin};
}

TEST(CogVideoXVaeBlocks, AFilterInPiecesIsTheFilterOfTheWhole) {
  const RandomWeights weights;
  const CausalConv conv(weights, "c", 8, 4, 3, DType::f32);
  const Frames x = counted({5, 4, 6, 4});
  nn::LocalSpatial spatial;
  FrameScene whole{spatial}, pieces{spatial};
  const Tensor all = conv(x, whole, DType::f32).data;
  const Tensor first = conv(some(x, 0, 3), pieces, DType::f32).data;
  const Tensor second = conv(some(x, 3, 5), pieces, DType::f32).data;
  EXPECT_EQ(all.to_floats(), ops::concat_rows({first, second}).to_floats());
}

TEST(CogVideoXVaeBlocks, AFrameDoesNotSeeLaterOnes) {
  const RandomWeights weights;
  const CausalConv conv(weights, "c", 8, 4, 3, DType::f32);
  const Frames x = counted({4, 4, 4, 4});
  nn::LocalSpatial spatial;
  FrameScene a{spatial}, b{spatial};
  EXPECT_EQ(conv(x, a, DType::f32).data.slice(0, 0, 2).to_floats(),
            conv(some(x, 0, 2), b, DType::f32).data.to_floats());
}

TEST(CogVideoXVaeBlocks, FramesDoubleAndHalveAsPublished) {
  const Frames x = counted({3, 1, 1, 1});  // -5, -4, -3
  EXPECT_EQ(doubled_frames(x).data.to_floats(), (std::vector<float>{-5, -4, -4, -3, -3}));
  EXPECT_EQ(doubled_frames(some(x, 0, 2)).data.to_floats(), (std::vector<float>{-5, -5, -4, -4}));
  EXPECT_EQ(doubled_frames(some(x, 0, 1)).data.size(0), 1);
  EXPECT_EQ(halved_frames(x).data.to_floats(), (std::vector<float>{-5, -3.5f}));
  EXPECT_EQ(halved_frames(some(x, 0, 2)).data.to_floats(), (std::vector<float>{-4.5f}));
}

TEST(CogVideoXVaeBlocks, AResnetMayWiden) {
  const RandomWeights weights;
  const FrameResnet resnet(weights, "r", 2, 4, 8, 3, DType::f32);
  nn::LocalSpatial spatial;
  FrameScene scene{spatial};
  EXPECT_EQ(resnet(counted({2, 4, 4, 4}), counted({2, 2, 2, 3}), scene).data.shape(),
            (tensor::Shape{2, 4, 4, 8}));
}

}  // namespace
}  // namespace tessera::models
