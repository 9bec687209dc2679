#include "nn/local_spatial.h"

#include <gtest/gtest.h>

#include <vector>

#include "ops/elementwise.h"
#include "tessera/error.h"

namespace tessera::nn {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor counting(const tensor::Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 5 % 11) - 5;
  return Tensor::from(values, shape);
}

TEST(LocalSpatial, ConvolvesWholeImages) {
  LocalSpatial spatial;
  const Plane x{counting({2, 4, 6, 3}), 4, 0};
  const ops::ConvWeight w = ops::pack_conv(counting({5, 3, 3, 3}), {}, DType::f32);
  const Plane y = spatial.conv(
      w, x, {.stride = 2, .pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1});
  EXPECT_EQ(y.data.shape(), tensor::Shape({2, 2, 3, 5}));
  EXPECT_EQ(y.height, 2);
  EXPECT_EQ(y.begin, 0);
}

TEST(LocalSpatial, SumsWhatTheFiltersMakeOfSuccessiveFrames) {
  LocalSpatial spatial;
  const Tensor frames = counting({5, 4, 6, 3});
  const std::vector<ops::ConvWeight> taps{ops::pack_conv(counting({2, 3, 3, 3}), {}, DType::f32),
                                          ops::pack_conv(counting({2, 3, 3, 3}), {}, DType::f32)};
  const ops::Conv2dOptions same{.pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1};
  const Plane y = spatial.convolve(taps, {frames, 4, 0}, same);
  const auto a = ops::conv2d(frames.slice(0, 0, 4), taps[0], same).to_floats();
  const auto b = ops::conv2d(frames.slice(0, 1, 5), taps[1], same).to_floats();
  const auto sum = y.data.to_floats();
  ASSERT_EQ(sum.size(), a.size());
  for (size_t i = 0; i < sum.size(); ++i) EXPECT_FLOAT_EQ(sum[i], a[i] + b[i]);
}

// Whatever the chunk, and however many lines are added on each side.
TEST(LocalSpatial, AChunkOfLinesGivesTheBitsOfAll) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::vector<ops::ConvWeight> taps{ops::pack_conv(counting({5, 3, 3, 3}), {}, dtype),
                                            ops::pack_conv(counting({5, 3, 3, 3}), {}, dtype)};
    const Tensor frames = ops::cast(counting({4, 9, 6, 3}), dtype);
    const Plane x{frames.slice(0, 1, 4), 9, 0, frames.slice(0, 0, 1)};
    for (const int top : {0, 1, 2}) {
      const ops::Conv2dOptions options{
          .pad_top = top, .pad_bottom = 2 - top, .pad_left = 1, .pad_right = 1};
      const Plane whole = LocalSpatial().convolve(taps, {frames, 9, 0}, options);
      EXPECT_EQ(whole.data.dtype(), dtype);
      for (const int64_t chunk : {0, 1, 2, 4, 9, 100}) {
        const Plane y = LocalSpatial(chunk).convolve(taps, x, options);
        EXPECT_EQ(y.data.to_floats(), whole.data.to_floats()) << chunk << " lines, padding " << top;
        EXPECT_EQ(y.height, 9);
      }
    }
  }
}

TEST(LocalSpatial, NarrowsInPlaceByChunks) {
  const ops::ConvWeight w = ops::pack_conv(counting({2, 3, 1, 1}), counting({2}), DType::f32);
  const Plane x{counting({2, 5, 6, 3}), 5, 0};
  const auto want = LocalSpatial().conv(w, x, {}).data.to_floats();
  for (const int64_t chunk : {0, 1, 3, 10, 100}) {
    const Tensor copy = counting({2, 5, 6, 3});
    const Plane y = LocalSpatial(chunk).narrow(w, {copy, 5, 0});
    EXPECT_EQ(y.data.to_floats(), want) << chunk;
    EXPECT_EQ(y.data.raw() == copy.raw(), chunk > 0 && chunk < 10) << chunk;
  }
  const ops::ConvWeight wide = ops::pack_conv(counting({4, 3, 1, 1}), {}, DType::f32);
  EXPECT_THROW(LocalSpatial(1).narrow(wide, {counting({1, 5, 6, 3}), 5, 0}), Error);
}

TEST(LocalSpatial, HasAllLines) {
  LocalSpatial spatial;
  EXPECT_EQ(spatial.lines(7), (Range{0, 7}));
  const Tensor x = counting({2, 4, 6, 3});
  EXPECT_EQ(spatial.join({x, 4, 0}).to_floats(), x.to_floats());
  const Tensor tall = x.reshape({1, 8, 6, 3});
  EXPECT_EQ(spatial.moments({x, 4, 0}, true).to_floats(), ops::channel_moments(tall).to_floats());
}

TEST(LocalSpatial, NormalisesAsGroupNorm) {
  LocalSpatial spatial;
  const Tensor data = counting({2, 3, 4, 8});
  const GroupNorm norm{2, counting({8}), counting({8}), 1e-5f};
  const Tensor scale_shift = spatial.scale_shift(norm, {data, 3, 0});
  EXPECT_EQ(ops::channel_affine(data, scale_shift, true).to_floats(),
            ops::group_norm(data, 2, norm.weight, norm.bias, 1e-5f, true).to_floats());
}

TEST(LocalSpatial, AttendsWithinAnImage) {
  LocalSpatial spatial;
  const Tensor both = counting({2, 2, 3, 8}), one = both.slice(0, 1, 2).contiguous();
  const Tensor tokens = both.reshape({12, 8}), own = one.reshape({6, 8});
  const Tensor all = spatial.attend({both, 2, 0}, tokens, tokens, tokens);
  const Tensor alone = spatial.attend({one, 2, 0}, own, own, own);
  EXPECT_EQ(all.slice(0, 6, 12).to_floats(), alone.to_floats());
}

}  // namespace
}  // namespace tessera::nn
