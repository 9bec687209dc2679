#include "ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::ops {
namespace {

using tensor::Device;

Tensor ramp(int64_t rows, int64_t columns, float step) {
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = step * static_cast<float>(static_cast<int>(i * 7 % 23) - 11);
  return Tensor::from(values, {rows, columns});
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::usage);
    return e.what();
  }
  return "no error";
}

TEST(AttentionOp, OneKeyGivesItsValue) {
  const Tensor q = ramp(3, 16, 0.3f), k = ramp(1, 16, 0.2f), v = ramp(1, 16, 1);
  Tensor lse;
  const std::vector<AttentionSpan> spans = {{0, 3, 0, 1}};
  const Tensor out = attention(q, k, v, 2, 2, spans, {.scale = 1, .lse = &lse});
  const auto values = v.to_floats(), queries = q.to_floats(), keys = k.to_floats();
  for (int64_t t = 0; t < 3; ++t)
    for (size_t c = 0; c < 16; ++c) EXPECT_NEAR(out.row<float>(t)[c], values[c], 1e-6);
  for (size_t t = 0; t < 3; ++t)
    for (size_t h = 0; h < 2; ++h) {
      float score = 0;
      for (size_t c = h * 8; c < h * 8 + 8; ++c) score += queries[t * 16 + c] * keys[c];
      EXPECT_NEAR(lse.data<float>()[t * 2 + h], score, 1e-4);
    }
}

TEST(AttentionOp, TheScaleIsOneOverTheRootOfHeadDimUnlessGiven) {
  const Tensor q = ramp(5, 16, 0.3f), k = ramp(9, 16, 0.2f), v = ramp(9, 16, 1);
  const std::vector<AttentionSpan> spans = {{0, 5, 0, 9}};
  EXPECT_EQ(attention(q, k, v, 1, 1, spans).to_floats(),
            attention(q, k, v, 1, 1, spans, {.scale = 0.25f}).to_floats());
}

TEST(AttentionOp, UnansweredQueriesAreZeros) {
  const Tensor q = ramp(4, 8, 1), k = ramp(6, 8, 1), v = ramp(6, 8, 1);
  Tensor lse;
  const std::vector<AttentionSpan> spans = {{0, 1, 0, 6}, {1, 2, 3, 3}};
  const Tensor out = attention(q, k, v, 1, 1, spans, {.lse = &lse});
  EXPECT_TRUE(std::isfinite(lse.data<float>()[0]));
  for (int64_t t = 1; t < 4; ++t) {
    EXPECT_EQ(lse.data<float>()[t], -std::numeric_limits<float>::infinity());
    for (int c = 0; c < 8; ++c) EXPECT_EQ(out.row<float>(t)[c], 0);
  }
}

TEST(AttentionOp, ZeroRowsAndNoSpans) {
  const Tensor q = Tensor::empty({0, 32}, DType::bf16), k = Tensor::empty({0, 16}, DType::bf16);
  Tensor lse;
  const Tensor out = attention(q, k, k, 4, 2, {}, {.lse = &lse});
  EXPECT_EQ(out.shape(), (tensor::Shape{0, 32}));
  EXPECT_EQ(lse.shape(), (tensor::Shape{0, 4}));
}

TEST(AttentionOp, MetaHasTheShapeAndIsMeteredAlike) {
  const std::vector<AttentionSpan> spans = {{0, 5, 0, 7}, {5, 6, 2, 9}};
  double flops[2], bytes[2];
  for (Device device : {Device::cpu, Device::meta}) {
    tensor::Scope scope;
    scope.meter = std::make_shared<tensor::Meter>();
    const tensor::BindScope bind(scope);
    const Tensor q = Tensor::zeros({6, 64}, DType::bf16, device);
    const Tensor k = Tensor::zeros({9, 32}, DType::bf16, device);
    Tensor lse;
    const Tensor out = attention(q, k, k, 4, 2, spans, {.lse = &lse});
    EXPECT_EQ(out.shape(), q.shape());
    EXPECT_EQ(out.dtype(), DType::bf16);
    EXPECT_EQ(out.device(), device);
    EXPECT_EQ(lse.shape(), (tensor::Shape{6, 4}));
    const auto total = scope.meter->entries().at("attention");
    flops[device == Device::meta] = total.flops;
    bytes[device == Device::meta] = total.bytes;
  }
  EXPECT_EQ(flops[0], 4.0 * (5 * 7 + 7) * 64);
  EXPECT_EQ(flops[0], flops[1]);
  EXPECT_EQ(bytes[0], 2.0 * (2 * 6 * 64 + 2 * 9 * 32));
  EXPECT_EQ(bytes[0], bytes[1]);
}

TEST(AttentionOp, TakesHeadsOfAnyWidth) {
  // Heads of 12 channels equal heads of 16 with four zeros at the end.
  Tensor wide[3], narrow[3];
  for (int i = 0; i < 3; ++i) {
    narrow[i] = ramp(5, 24, static_cast<float>(i + 1));
    wide[i] = Tensor::zeros({5, 32}, DType::f32);
    for (int64_t t = 0; t < 5; ++t)
      for (int64_t c = 0; c < 24; ++c)
        wide[i].row<float>(t)[c / 12 * 16 + c % 12] = narrow[i].row<float>(t)[c];
  }
  const std::vector<AttentionSpan> spans = {{0, 5, 0, 5}};
  const Tensor got = attention(narrow[0], narrow[1], narrow[2], 2, 2, spans);
  const Tensor want =
      attention(wide[0], wide[1], wide[2], 2, 2, spans, {.scale = 1 / std::sqrt(12.0f)});
  ASSERT_EQ(got.shape(), (tensor::Shape{5, 24}));
  for (int64_t t = 0; t < 5; ++t)
    for (int64_t c = 0; c < 24; ++c)
      EXPECT_EQ(got.row<float>(t)[c], want.row<float>(t)[c / 12 * 16 + c % 12]);
}

TEST(AttentionOp, Int8ScoresOfHeadsOfAnyWidth) {
  const auto in_bf16 = [](int64_t rows, float step) {
    Tensor x = Tensor::empty({rows, 24}, DType::bf16);
    const std::vector<float> values = ramp(rows, 24, step).to_floats();
    for (size_t i = 0; i < values.size(); ++i)
      x.data<tensor::BFloat16>()[i] = tensor::to_bfloat16(values[i]);
    return x;
  };
  const Tensor q = in_bf16(5, 0.1f), k = in_bf16(70, 0.2f);
  const std::vector<AttentionSpan> spans = {{0, 5, 0, 70}};
  const auto run = [&](bool int8) {
    return attention(q, k, k, 2, 2, spans, {.wide = true, .int8_scores = int8}).to_floats();
  };
  const std::vector<float> exact = run(false), got = run(true);
  EXPECT_NE(got, exact);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], exact[i], 0.05) << i;
}

TEST(AttentionOp, ErrorsNameWhatIsWrong) {
  const Tensor q = ramp(4, 32, 1), k = ramp(6, 16, 1);
  const std::vector<AttentionSpan> none, beyond = {{0, 4, 2, 7}}, reversed = {{3, 1, 0, 6}};
  auto message = [&](const Tensor& queries, const Tensor& keys, const Tensor& values, int heads,
                     int kv_heads, const std::vector<AttentionSpan>& spans) {
    return error_of([&] { attention(queries, keys, values, heads, kv_heads, spans); });
  };
  EXPECT_NE(message(q, k, k, 4, 3, none).find("4 heads over 3"), std::string::npos);
  EXPECT_NE(message(q, k, k, 0, 0, none).find("0 heads"), std::string::npos);
  EXPECT_NE(message(q, k, k, 5, 5, none).find("[4, 32]"), std::string::npos);
  EXPECT_NE(message(ramp(4, 2048, 1), k, k, 2, 2, none).find("head_dim 1024"), std::string::npos);
  EXPECT_NE(message(q, k, k, 4, 4, none).find("[6, 16]"), std::string::npos);
  EXPECT_NE(message(q, k, ramp(5, 16, 1), 4, 2, none).find("[5, 16]"), std::string::npos);
  const Tensor half = Tensor::zeros({6, 16}, DType::f16);
  EXPECT_NE(message(q, half, half, 4, 2, none).find("f16"), std::string::npos);
  EXPECT_NE(message(q, k, k, 4, 2, beyond).find("[2, 7)"), std::string::npos);
  EXPECT_NE(message(q, k, k, 4, 2, reversed).find("[3, 1)"), std::string::npos);
  EXPECT_NE(error_of([&] {
              attention(q, k, k, 4, 2, none, {.int8_scores = true});
            }).find("int8 scores of f32"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::ops
