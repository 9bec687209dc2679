#include "comm/nccl/parcel.h"

#include <gtest/gtest.h>

#include <vector>

#include "tessera/error.h"

namespace tessera::comm::nccl {
namespace {

using tensor::DType;
using tensor::Tensor;

TEST(Parcel, TellsShapeTypeAndTag) {
  for (int site : {-1, 0, 77})
    for (const auto& shape : {tensor::Shape{}, tensor::Shape{0, 7}, tensor::Shape{1, 2, 3, 4}}) {
      const Message told = describe({{"dispatch", site}, Tensor::empty(shape, DType::bf16)});
      EXPECT_TRUE(ours(told));
      EXPECT_EQ(told.order, 0u);
      EXPECT_FALSE(is_farewell(told));
      EXPECT_EQ(told.data.device(), tensor::Device::cpu);
      const Parcel parcel = read_parcel(told);
      EXPECT_STREQ(parcel.tag.operation, "dispatch");
      EXPECT_EQ(parcel.tag.site, site);
      EXPECT_EQ(parcel.shape, shape);
      EXPECT_EQ(parcel.dtype, DType::bf16);
    }
}

TEST(Parcel, MessagesOfCommunicatorsAreOthers) {
  for (int site : {-1, 0, 1 << 30})
    EXPECT_FALSE(ours({{"x", site}, Tensor::empty({3}, DType::i64)}));
  EXPECT_TRUE(ours(farewell(1)));
  EXPECT_TRUE(is_farewell(farewell(1)));
  EXPECT_NE(farewell(1).order, farewell(2).order);
}

TEST(Parcel, WhatNoRankSendsIsRefused) {
  const auto refused = [](std::vector<int64_t> numbers, DType dtype = DType::i64) {
    const Tensor head = Tensor::empty({static_cast<int64_t>(numbers.size())}, dtype);
    if (dtype == DType::i64)
      for (size_t i = 0; i < numbers.size(); ++i) head.data<int64_t>()[i] = numbers[i];
    EXPECT_THROW(read_parcel({{"x", -3}, head}), Error);
  };
  refused({});
  refused({-1, 3});
  refused({7, 3});
  refused({0, -3});
  refused({0, int64_t{1} << 47, int64_t{1} << 47});
  refused({0, 0, int64_t{1} << 47, 4, 1});
  refused({0, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  refused({0, 3}, DType::f32);
}

}  // namespace
}  // namespace tessera::comm::nccl
