#include "ops/conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "kernels/conv.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::ops {
namespace {

using tensor::Device;
using tensor::Shape;

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3;
  return Tensor::from(values, shape);
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    return e.what();
  }
  return "no error";
}

TEST(Conv, SumsSmallIntegersExactly) {
  const Tensor x = counting({1, 3, 3, 1});
  const ConvWeight box = pack_conv(Tensor::from(std::vector<float>(9, 1.0f), {1, 1, 3, 3}),
                                   Tensor::from(std::vector<float>{10}, {1}), DType::f32);
  const Tensor y = conv2d(x, box, {.pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1});
  // x is -3 -2 -1 / 0 1 2 / 3 -3 -2
  EXPECT_EQ(y.to_floats(), (std::vector<float>{6, 7, 10, 6, 5, 5, 11, 11, 8}));
}

TEST(Conv, UpsamplesInsideAsOutside) {
  const Tensor x = counting({2, 4, 5, 3});
  const ConvWeight w = pack_conv(counting({4, 3, 3, 3}), {}, DType::f32);
  Conv2dOptions same{.pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1};
  const Tensor outside = conv2d(upsample_nearest_2x(x), w, same);
  same.upsample = true;
  const Tensor inside = conv2d(x, w, same);
  EXPECT_EQ(outside.shape(), Shape({2, 8, 10, 4}));
  EXPECT_EQ(outside.to_floats(), inside.to_floats());
}

TEST(Conv, NormalisesInsideAsOutsideAndAddsInPlace) {
  const Tensor x = counting({2, 4, 5, 6});
  const Tensor weight = counting({6}), bias = counting({6});
  const ConvWeight w = pack_conv(counting({6, 6, 1, 1}), {}, DType::f32);
  const Tensor plain = conv2d(group_norm(x, 3, weight, bias, 1e-6f, true), w, {});
  const Tensor sum = counting({2, 4, 5, 6});
  const Tensor fused =
      conv2d(x, w,
             {.scale_shift = group_scale_shift(channel_moments(x), 3, weight, bias, 1e-6f),
              .silu = true,
              .residual = sum,
              .into_residual = true});
  EXPECT_EQ(fused.raw(), sum.raw());
  const std::vector<float> a = plain.to_floats(), b = fused.to_floats(), c = x.to_floats();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i] + c[i], b[i], 1e-4);
}

TEST(Conv, GroupNormGivesZeroMeanAndUnitVariance) {
  const Tensor y = group_norm(counting({2, 5, 4, 8}), 2, {}, {}, 0, false);
  const std::vector<float> v = y.to_floats();
  for (size_t row = 0; row < 2; ++row)
    for (size_t g = 0; g < 2; ++g) {
      double sum = 0, squares = 0;
      for (size_t p = 0; p < 20; ++p)
        for (size_t c = 0; c < 4; ++c) {
          const double e = v[(row * 20 + p) * 8 + g * 4 + c];
          sum += e;
          squares += e * e;
        }
      EXPECT_NEAR(sum, 0, 1e-4);
      EXPECT_NEAR(squares / 80, 1, 1e-4);
    }
}

TEST(Conv, TakesViewsOfLines) {
  const Tensor x = counting({2, 6, 5, 4}), lines = x.slice(1, 1, 4);
  const ConvWeight w = pack_conv(counting({3, 4, 3, 3}), {}, DType::f32);
  EXPECT_EQ(conv2d(lines, w, {}).to_floats(), conv2d(lines.contiguous(), w, {}).to_floats());
  EXPECT_EQ(channel_moments(lines).to_floats(), channel_moments(lines.contiguous()).to_floats());
}

TEST(Conv, MetaAndZeroRowsGiveShapesAndCounts) {
  tensor::Scope scope;
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  const Conv2dOptions options{.stride = 2, .pad_bottom = 1, .pad_right = 1};
  const ConvWeight real = pack_conv(counting({5, 4, 3, 3}), {}, DType::f32);
  EXPECT_EQ(conv2d(counting({0, 8, 6, 4}), real, options).shape(), Shape({0, 4, 3, 5}));
  conv2d(counting({2, 8, 6, 4}), real, options);
  const double flops = scope.meter->entries().at("conv2d").flops;
  EXPECT_EQ(flops, 2.0 * 2 * 4 * 3 * 5 * 36);
  const ConvWeight meta =
      pack_conv(Tensor::empty({5, 4, 3, 3}, DType::bf16, Device::meta), {}, DType::bf16);
  const Tensor x = Tensor::empty({2, 8, 6, 4}, DType::bf16, Device::meta);
  const Tensor y = conv2d(x, meta, options);
  EXPECT_TRUE(y.is_meta());
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_EQ(scope.meter->entries().at("conv2d").flops, 2 * flops);
  EXPECT_EQ(group_norm(x, 2, {}, {}, 1e-6f, true).shape(), x.shape());
  EXPECT_EQ(upsample_nearest_2x(x).shape(), Shape({2, 16, 12, 4}));
}

TEST(Conv, NamesWhatDoesNotFit) {
  const ConvWeight w = pack_conv(counting({5, 4, 3, 3}), {}, DType::f32);
  const Tensor x = counting({1, 4, 4, 4});
  auto says = [](const std::function<void()>& f, const char* words) {
    EXPECT_NE(message_of(f).find(words), std::string::npos) << message_of(f);
  };
  says([&] { conv2d(x, nullptr, {}); }, "no filter");
  says([&] { conv2d(counting({1, 4, 4, 3}), w, {}); }, "3 channels");
  says([&] { conv2d(counting({1, 2, 2, 4}), w, {}); }, "smaller than the filter");
  says([&] { conv2d(x, w, {.stride = 0}); }, "stride 0");
  says([&] { conv2d(x, w, {.residual = x}); }, "residual [1, 4, 4, 4]");
  says([&] { conv2d(x, w, {.scale_shift = x}); }, "expected dense f32 [1, 2, 4]");
  says([&] { group_norm(x, 3, {}, {}, 0, false); }, "4 channels in 3 groups");
  says([&] { group_norm(x, 2, counting({5}), {}, 0, false); }, "expected f32 [4]");
  says([&] { pack_conv(x.reshape({4, 16}), {}, DType::f32); }, "[4, 16]");
  says([&] { pack_conv(x, counting({3}), DType::f32); }, "bias [3]");
  says([&] { pack_conv(x, {}, DType::f16); }, "f16");
}

}  // namespace
}  // namespace tessera::ops
