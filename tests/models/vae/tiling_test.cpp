#include "models/vae/tiling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::models {
namespace {

using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

// Every latent pixel becomes `factor` x `factor` equal pixels.
Tensor enlarged(const Tensor& x, int64_t factor) {
  std::vector<int64_t> sizes(x.shape().begin(), x.shape().end());
  const int64_t h = sizes[sizes.size() - 2], w = sizes.back();
  sizes[sizes.size() - 2] *= factor;
  sizes.back() *= factor;
  Tensor y = Tensor::empty(Shape(sizes), DType::f32, x.device());
  if (x.is_meta()) return y;
  for (int64_t i = 0; i < y.elements(); ++i) {
    const int64_t column = i % (w * factor), line = i / (w * factor) % (h * factor);
    const int64_t plane = i / (w * factor * h * factor);
    y.data<float>()[i] = x.data<float>()[(plane * h + line / factor) * w + column / factor];
  }
  return y;
}

Tensor counted(const Shape& shape) {
  Tensor x = Tensor::empty(shape, DType::f32);
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = static_cast<float>(i % 97);
  return x;
}

TEST(Tiling, RoundsAsDiffusers) {
  const TileSide image = tile_side(512, 8, 0.25);
  EXPECT_EQ(image.size, 64);
  EXPECT_EQ(image.step, 48);
  const TileSide high = tile_side(240, 8, 1.0 / 6), wide = tile_side(360, 8, 1.0 / 5);
  EXPECT_EQ(high.size, 30);
  EXPECT_EQ(high.step, 25);
  EXPECT_EQ(wide.size, 45);
  EXPECT_EQ(wide.step, 36);
  EXPECT_EQ(tile_side(1, 8, 0.25).step, 1);
}

TEST(Tiling, ALocalDecoderGivesTheSameImage) {
  for (const Shape& shape : {Shape{1, 2, 9, 14}, Shape{2, 3, 4, 7}, Shape{1, 2, 3, 9, 5}})
    for (const Tiling& tiling :
         {Tiling{{4, 3}, {5, 4}}, Tiling{{8, 6}, {8, 6}}, Tiling{{1, 1}, {9, 2}}}) {
      const Tensor x = counted(shape);
      const auto got = decode_tiles(x, 2, tiling, [](const Tensor& t) { return enlarged(t, 2); });
      const Tensor want = enlarged(x, 2);
      ASSERT_EQ(got.shape(), want.shape());
      const auto a = got.to_floats(), b = want.to_floats();
      for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << i;
    }
}

// Tiles of a single colour each, the second brighter: the seam rises evenly.
TEST(Tiling, SeamsAreBlended) {
  int number = 0;
  const auto decode = [&](const Tensor& t) {
    Tensor y = Tensor::empty({1, 1, t.size(2) * 2, t.size(3) * 2}, DType::f32);
    std::fill_n(y.data<float>(), y.elements(), static_cast<float>(number++));
    return y;
  };
  std::vector<std::pair<int, int>> pieces;
  const auto got = decode_tiles(counted({1, 1, 1, 6}), 2, {{4, 3}, {4, 3}}, decode,
                                [&](int done, int count) { pieces.emplace_back(done, count); });
  EXPECT_EQ(got.shape(), Shape({1, 1, 2, 12}));
  const std::vector<float> line{0, 0, 0, 0, 0, 0, 0, 0.5f, 1, 1, 1, 1};
  std::vector<float> want = line;
  want.insert(want.end(), line.begin(), line.end());
  EXPECT_EQ(got.to_floats(), want);
  EXPECT_EQ(pieces, (std::vector<std::pair<int, int>>{{1, 2}, {2, 2}}));
}

TEST(Tiling, OneTileIsTheWholeImage) {
  int calls = 0;
  const Tensor x = counted({1, 1, 4, 4});
  const auto got = decode_tiles(x, 2, {{4, 3}, {5, 4}}, [&](const Tensor& t) {
    ++calls;
    return enlarged(t, 2);
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(got.to_floats(), enlarged(x, 2).to_floats());
}

TEST(Tiling, MetaDecodesTwoRowsOfTiles) {  // those below hold no more
  int calls = 0;
  const Tensor x = Tensor::empty({1, 4, 100, 100}, DType::f32, tensor::Device::meta);
  const auto got = decode_tiles(x, 8, {{8, 6}, {8, 6}}, [&](const Tensor& t) {
    ++calls;
    return enlarged(t, 8);
  });
  EXPECT_EQ(got.shape(), Shape({1, 4, 800, 800}));
  EXPECT_EQ(calls, 2 * 17);
}

// The inverse of enlarged().
Tensor reduced(const Tensor& x, int64_t factor) {
  std::vector<int64_t> sizes(x.shape().begin(), x.shape().end());
  const int64_t w = sizes.back(), h = sizes[sizes.size() - 2];
  sizes[sizes.size() - 2] /= factor;
  sizes.back() /= factor;
  Tensor y = Tensor::empty(Shape(sizes), DType::f32);
  for (int64_t i = 0; i < y.elements(); ++i) {
    const int64_t column = i % (w / factor), line = i / (w / factor) % (h / factor);
    const int64_t plane = i / (w / factor * (h / factor));
    y.data<float>()[i] = x.data<float>()[(plane * h + line * factor) * w + column * factor];
  }
  return y;
}

TEST(Tiling, ALocalEncoderGivesTheSameLatents) {
  for (const Shape& shape : {Shape{1, 2, 9, 14}, Shape{2, 3, 4, 7}, Shape{1, 2, 3, 9, 5}})
    for (const Tiling& tiling :
         {Tiling{{4, 3}, {5, 4}}, Tiling{{8, 6}, {8, 6}}, Tiling{{1, 1}, {9, 2}}}) {
      const Tensor want = counted(shape);
      int tiles = 0;
      const auto got = encode_tiles(enlarged(want, 4), 4, tiling, [&](const Tensor& t) {
        ++tiles;
        EXPECT_LE(t.size(-1), 4 * tiling.width.size);
        return reduced(t, 4);
      });
      ASSERT_EQ(got.shape(), want.shape());
      EXPECT_EQ(tiles > 1, !tiling.covers(want));
      const auto a = got.to_floats(), b = want.to_floats();
      for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << i;
    }
}

TEST(Tiling, EncodesMultiplesOnly) {
  const auto half = [](const Tensor& t) { return reduced(t, 2); };
  EXPECT_THROW(encode_tiles(counted({1, 1, 8, 9}), 2, {{2, 1}, {2, 1}}, half), Error);
  EXPECT_THROW(encode_tiles(counted({1, 1, 8, 8}), 2, {{2, 1}, {2, 0}}, half), Error);
}

TEST(Tiling, RefusesTilesWithoutAStep) {
  const auto same = [](const Tensor& t) { return t; };
  EXPECT_THROW(decode_tiles(counted({1, 1, 4, 4}), 2, {{4, 0}, {4, 3}}, same), Error);
}

}  // namespace
}  // namespace tessera::models
