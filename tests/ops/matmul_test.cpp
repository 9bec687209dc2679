#include "ops/matmul.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::ops {
namespace {

using tensor::Device;

Tensor counting(int64_t rows, int64_t columns, DType dtype = DType::f32) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * columns; ++i) values.push_back(static_cast<float>(i % 7) - 3);
  const Tensor f32 = Tensor::from(values, {rows, columns});
  if (dtype == DType::f32) return f32;
  Tensor t = Tensor::empty({rows, columns}, dtype);
  for (size_t i = 0; i < values.size(); ++i)
    t.data<tensor::BFloat16>()[i] = tensor::to_bfloat16(values[i]);
  return t;
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

TEST(Matmul, MultipliesSmallIntegersExactly) {
  for (DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = counting(3, 5, dtype), w = counting(4, 5);
    const Tensor y = matmul(x, pack_weight(w, dtype));
    EXPECT_EQ(y.dtype(), dtype);
    ASSERT_EQ(y.shape(), tensor::Shape({3, 4}));
    const std::vector<float> a = x.to_floats(), b = w.to_floats(), got = y.to_floats();
    for (size_t r = 0; r < 3; ++r)
      for (size_t j = 0; j < 4; ++j) {
        float want = 0;
        for (size_t i = 0; i < 5; ++i) want += a[r * 5 + i] * b[j * 5 + i];
        EXPECT_EQ(got[r * 4 + j], want);
      }
  }
}

TEST(Matmul, TakesOutColumnViewsAndTheEpilogue) {
  const Tensor x = counting(2, 8).slice(1, 2, 6), w = counting(3, 4);
  const Tensor plain = matmul(x, pack_weight(w, DType::f32));
  MatmulOptions options;
  options.bias = Tensor::from(std::vector<float>{1, 2, 3}, {3});
  options.gate = Tensor::from(std::vector<float>{1, 1, 1, 2, 2, 2}, {2, 3});
  const std::vector<int32_t> row_of = {1, 0};
  options.row_of = row_of;
  options.residual = Tensor::from(std::vector<float>{5, 5, 5, 7, 7, 7}, {2, 3});
  options.out = DType::bf16;
  options.out_as_input = false;
  const Tensor y = matmul(x, pack_weight(w, DType::f32), options);
  EXPECT_EQ(y.dtype(), DType::bf16);
  const std::vector<float> a = plain.to_floats(), b = y.to_floats();
  for (size_t j = 0; j < 3; ++j) {
    EXPECT_EQ(b[j], (a[j] + static_cast<float>(j + 1)) * 2 + 5);
    EXPECT_EQ(b[3 + j], (a[3 + j] + static_cast<float>(j + 1)) + 7);
  }
}

TEST(Matmul, WritesWhereTheCallerSays) {
  const Tensor x = counting(3, 4), both = Tensor::zeros({5, 8}, DType::f32);
  const Weight w = pack_weight(counting(6, 4), DType::f32);
  const Tensor view = both.slice(0, 1, 4).slice(1, 1, 7);
  EXPECT_EQ(matmul(x, w, {.into = view}).raw(), view.raw());
  EXPECT_EQ(view.to_floats(), matmul(x, w).to_floats());
  EXPECT_EQ(both.slice(1, 0, 1).to_floats(), std::vector<float>(5));
  EXPECT_EQ(both.slice(1, 7, 8).to_floats(), std::vector<float>(5));
  EXPECT_THROW(matmul(x, w, {.into = both}), Error);
}

TEST(Matmul, AGroupGivesWhatItsProductsGiveAlone) {
  const Tensor x = counting(3, 4);
  const Weight w = pack_weight(counting(6, 4), DType::f32),
               v = pack_weight(counting(2, 4), DType::f32);
  MatmulGroup group;
  const Tensor first = matmul(x, w, {.group = &group});
  const Tensor second = matmul(x, v, {.residual = counting(3, 2), .group = &group});
  group.run();
  EXPECT_EQ(first.to_floats(), matmul(x, w).to_floats());
  EXPECT_EQ(second.to_floats(), matmul(x, v, {.residual = counting(3, 2)}).to_floats());
  group.run();  // nothing is left
  const Tensor third = matmul(x, v, {.group = &group});
  group.run();
  EXPECT_EQ(third.to_floats(), matmul(x, v).to_floats());
}

TEST(Matmul, ZeroRowsAndMetaGiveShapesAndCounts) {
  tensor::Scope scope;
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  const Weight w = pack_weight(counting(6, 4), DType::f32);
  EXPECT_EQ(matmul(Tensor::empty({0, 4}, DType::bf16), w).shape(), tensor::Shape({0, 6}));
  const Tensor real = matmul(counting(5, 4), w);
  const tensor::Meter::Entry on_cpu = scope.meter->entries().at("matmul");
  EXPECT_EQ(on_cpu.flops, 2 * 5 * 6 * 4);
  const Weight meta = pack_weight(Tensor::empty({6, 4}, DType::f32, Device::meta), DType::f32);
  const Tensor y = matmul(Tensor::empty({5, 4}, DType::f32, Device::meta), meta);
  EXPECT_TRUE(y.is_meta());
  EXPECT_EQ(y.shape(), real.shape());
  EXPECT_EQ(scope.meter->entries().at("matmul").flops, 2 * on_cpu.flops);
}

TEST(Matmul, NamesWhatDoesNotFit) {
  const Weight w = pack_weight(counting(6, 4), DType::f32);
  const Weight pair = pack_paired_weight(counting(6, 4), counting(6, 4), DType::f32);
  const Tensor x = counting(2, 4);
  EXPECT_NE(message_of([&] { matmul(counting(2, 5), w); }).find("[2, 5]"), std::string::npos);
  EXPECT_NE(message_of([&] { matmul(x, nullptr); }).find("no weight"), std::string::npos);
  EXPECT_NE(message_of([&] { matmul(x, pair); }).find("swiglu"), std::string::npos);
  EXPECT_NE(message_of([&] { matmul(x, w, {.activation = Activation::swiglu}); }).find("paired"),
            std::string::npos);
  MatmulOptions options;
  options.bias = counting(1, 5).reshape({5});
  EXPECT_NE(message_of([&] { matmul(x, w, options); }).find("bias [5]"), std::string::npos);
  options = {};
  options.residual = counting(3, 6);
  EXPECT_NE(message_of([&] { matmul(x, w, options); }).find("residual [3, 6]"), std::string::npos);
  options = {};
  options.gate = counting(2, 6);
  const std::vector<int32_t> outside = {0, 2}, few = {0};
  options.row_of = outside;
  EXPECT_NE(message_of([&] { matmul(x, w, options); }).find("2 rows"), std::string::npos);
  options.row_of = few;
  EXPECT_NE(message_of([&] { matmul(x, w, options); }).find("row_of"), std::string::npos);
}

// Small whole numbers with a row's largest magnitude of 127 are exact, whatever the scale.
TEST(Matmul, RowsOfInt8TimesInt8AreExactWholeNumbers) {
  Tensor x = counting(3, 64), w = counting(4, 64);
  for (int64_t r = 0; r < 3; ++r) x.row<float>(r)[5] = 127;
  for (int64_t r = 0; r < 4; ++r) w.row<float>(r)[9] = -127;
  const Weight packed = pack_weight(w, WeightForm::of_rows(false));
  EXPECT_TRUE(packed->int8_rows);
  const std::vector<float> got = matmul(x, packed).to_floats(), a = x.to_floats(),
                           b = w.to_floats();
  for (size_t r = 0; r < 3; ++r)
    for (size_t j = 0; j < 4; ++j) {
      float want = 0;
      for (size_t i = 0; i < 64; ++i) want += a[r * 64 + i] * b[j * 64 + i];
      EXPECT_FLOAT_EQ(got[r * 4 + j], want);
    }
}

TEST(Matmul, FormsWeighOnMetaWhatTheyWeigh) {
  for (const bool int4 : {false, true})
    for (const bool paired : {false, true}) {
      const WeightForm form = WeightForm::of_rows(int4);
      const Tensor w = counting(40, 70), meta = Tensor::empty({40, 70}, DType::f32, Device::meta);
      const Weight here = paired ? pack_paired_weight(w, w, form) : pack_weight(w, form),
                   there = paired ? pack_paired_weight(meta, meta, form) : pack_weight(meta, form);
      EXPECT_EQ(here->bytes(), there->bytes());
      EXPECT_EQ(here->int4, int4);
      EXPECT_EQ(there->int4, int4);
      EXPECT_TRUE(there->int8_rows);
    }
  EXPECT_NE(message_of([] { pack_weight(counting(4, 5), WeightForm::of_rows(true)); }).find("even"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              pack_weight(counting(4, 6), WeightForm::of_rows(true), Device::cuda);
            }).find("for CPUs"),
            std::string::npos);
  EXPECT_EQ(name_of(WeightForm::of_rows(true)), "i4 x i8");
  EXPECT_EQ(name_of(WeightForm(DType::bf16)), "bf16");
}

}  // namespace
}  // namespace tessera::ops
