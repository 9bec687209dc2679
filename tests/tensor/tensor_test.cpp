#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/stop.h"
#include "tensor/scope.h"
#include "tessera/error.h"

namespace tessera::tensor {
namespace {

Tensor counting(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::from(std::span<const float>(values), shape);
}

TEST(Tensor, SlicesAreViews) {
  const Tensor x = counting({3, 4});
  const Tensor columns = x.slice(1, 1, 3);
  EXPECT_FALSE(columns.dense());
  EXPECT_EQ(columns.to_floats(), (std::vector<float>{1, 2, 5, 6, 9, 10}));
  columns.row<float>(1)[0] = 50;
  EXPECT_EQ(x.to_floats()[5], 50);
  EXPECT_EQ(columns.contiguous().to_floats()[2], 50);
  EXPECT_TRUE(columns.contiguous().dense());
  EXPECT_TRUE(x.slice(0, 1, 2).dense());
}

// Copies above 4 MB in pieces: whole rows, and parts of rows, on one thread and on several.
TEST(Tensor, CopiesMuchInPieces) {
  base::ThreadPool pool(3);
  for (const Shape& shape : {Shape{5000, 700}, Shape{3, 1500001}}) {
    const Tensor x = counting(shape);
    for (const bool several : {false, true}) {
      Scope scope;
      scope.pool = several ? &pool : nullptr;
      const BindScope bind(scope);
      const Tensor part = x.slice(1, 1, shape[1] - 2), copy = part.contiguous();
      EXPECT_TRUE(copy.dense());
      EXPECT_EQ(copy.to_floats(), part.to_floats());
      const Tensor whole = Tensor::zeros(shape, DType::f32);
      copy_into(whole, x);
      EXPECT_EQ(whole.to_floats(), x.to_floats());
    }
    Scope scope;
    scope.pool = &pool;
    const BindScope bind(scope);
    std::stop_source source;
    source.request_stop();
    const base::BindStop stopped(source.get_token());
    EXPECT_THROW(copy_into(Tensor::empty(shape, DType::f32), x), Error);
  }
}

TEST(Tensor, ReshapesWhatIsDense) {
  const Tensor x = counting({3, 4});
  EXPECT_EQ(x.reshape({2, 6}).size(1), 6);
  EXPECT_THROW(x.reshape({5}), Error);
  EXPECT_THROW(x.slice(1, 0, 2).reshape({6}), Error);
}

TEST(Tensor, ReadsItsBytesAsAnotherType) {
  const Tensor ids = Tensor::from(std::vector<int32_t>{0x3f800000, 5, -1}, {3});
  EXPECT_EQ(ids.slice(0, 0, 1).bits_as(DType::f32).to_floats(), std::vector<float>{1});
  const Tensor halves = ids.bits_as(DType::bf16);
  EXPECT_EQ(halves.elements(), 6);
  EXPECT_EQ(halves.to_floats()[1], 1);
  EXPECT_EQ(halves.slice(0, 2, 4).bits_as(DType::i32).to_ints(), std::vector<int64_t>{5});
  EXPECT_THROW(halves.slice(0, 1, 3).bits_as(DType::i32), Error) << "not aligned";
  EXPECT_THROW(halves.slice(0, 0, 3).bits_as(DType::i32), Error) << "no whole number of them";
  EXPECT_THROW(ids.reshape({3, 1}).bits_as(DType::f32), Error);
}

TEST(Tensor, RefusesToLeaveItsBounds) {
  const Tensor x = counting({3, 4});
  EXPECT_THROW(x.slice(0, 2, 4), Error);
  EXPECT_THROW(x.slice(0, 2, 1), Error);
  EXPECT_THROW(x.slice(2, 0, 1), Error);
  const std::vector<float> one{1};
  const auto storage = Storage::allocate(16, Device::cpu, MemoryClass::buffers);
  EXPECT_THROW(Tensor::over(storage, 4, {4}, DType::f32), Error);
  EXPECT_THROW(Tensor::over(storage, -4, {1}, DType::f32), Error);
  EXPECT_THROW(Tensor::from(std::span<const float>(one), {2}), Error);
}

TEST(Tensor, MetaHasShapeOnly) {
  const Tensor x = Tensor::empty({2, 3}, DType::bf16, Device::meta);
  EXPECT_TRUE(x.is_meta());
  EXPECT_EQ(x.bytes(), 12);
  EXPECT_EQ(x.raw(), nullptr);
  EXPECT_EQ(x.slice(1, 0, 2).contiguous().shape(), (Shape{2, 2}));
  EXPECT_THROW(x.to_floats(), Error);
}

TEST(Tensor, ReadsIntegersAsIntegersOnly) {
  const std::vector<int32_t> whole{1, -2};
  EXPECT_EQ(Tensor::from(std::span<const int32_t>(whole), {2}).to_ints(),
            (std::vector<int64_t>{1, -2}));
  EXPECT_THROW(counting({2}).to_ints(), Error);
  EXPECT_EQ(Tensor::zeros({2}, DType::u8).to_floats(), (std::vector<float>{0, 0}));
}

TEST(Tensor, ZeroRowsAreLegal) {
  const Tensor x = Tensor::empty({0, 4}, DType::f32);
  EXPECT_EQ(x.slice(1, 1, 2).contiguous().elements(), 0);
  EXPECT_TRUE(x.to_floats().empty());
}

}  // namespace
}  // namespace tessera::tensor
