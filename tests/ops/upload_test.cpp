#include "ops/upload.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tensor/fake_runtime.h"
#include "tessera/error.h"

namespace tessera::ops {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

TEST(Upload, OnTheCpuItIsTheArrayItself) {
  const std::vector<int32_t> rows = {0, 1, 1};
  EXPECT_EQ(Uploaded<int32_t>(rows, Device::cpu).data(), rows.data());
  EXPECT_EQ(Uploaded<int32_t>({}, Device::cpu).data(), nullptr);
}

TEST(RowMap, IsCheckedAgainstTokensAndTables) {
  const Tensor table = Tensor::zeros({2, 3}, DType::f32);
  const std::vector<int32_t> ones = {1, 0, 1}, outside = {0, 2}, below = {-1};
  const RowMap map(ones), none, empty(std::vector<int32_t>{});
  map.check("op", 3, "gate", table);
  EXPECT_EQ(map.data()[2], 1);
  none.check("op", 7, "gate", table);  // row 0 for all
  EXPECT_EQ(none.data(), nullptr);
  empty.check("op", 0, "gate", Tensor::zeros({0, 3}, DType::f32));
  EXPECT_THROW(none.check("op", 7, "gate", Tensor::zeros({0, 3}, DType::f32)), Error);
  EXPECT_THROW(map.check("op", 2, "gate", table), Error);
  EXPECT_EQ(none.part(0, 1).data(), nullptr);
  map.part(1, 3).check("op", 2, "gate", table);
  EXPECT_EQ(map.part(1, 3).data(), map.data() + 1);
  EXPECT_THROW(RowMap(outside).check("op", 2, "gate", table), Error);
  EXPECT_THROW(RowMap(below).check("op", 1, "gate", table), Error);
  RowMap(ones, Device::meta)
      .check("op", 3, "gate", Tensor::empty({2, 3}, DType::f32, Device::meta));
}

TEST(ResultOf, IsWrittenWhereTheCallerSays) {
  const Tensor both = Tensor::zeros({4, 6}, DType::f32), view = both.slice(1, 2, 5);
  EXPECT_EQ(result_of("op", view, {4, 3}, DType::f32, Device::cpu).raw(), view.raw());
  EXPECT_EQ(result_of("op", {}, {4, 3}, DType::bf16, Device::cpu).dtype(), DType::bf16);
  EXPECT_THROW(result_of("op", view, {4, 2}, DType::f32, Device::cpu), Error);
  EXPECT_THROW(result_of("op", view, {4, 3}, DType::bf16, Device::cpu), Error);
}

TEST(Upload, OnAGpuItIsACopyThatIsSentOnce) {
  const auto runtime = std::make_shared<tensor::FakeRuntime>();
  tensor::use_device(std::make_shared<tensor::DevicePool>(runtime));
  {
    const std::vector<int32_t> rows = {4, 5, 6};
    const Uploaded<int32_t> there(rows, Device::cuda);
    EXPECT_NE(there.data(), rows.data());
    EXPECT_EQ(std::vector<int32_t>(there.data(), there.data() + 3), rows);
    EXPECT_EQ(Uploaded<int32_t>({}, Device::cuda).data(), nullptr);
    EXPECT_EQ(runtime->copies.size(), 1u);
    const std::vector<int32_t> same = rows, other = {4, 5, 7};
    EXPECT_EQ(Uploaded<int32_t>(same, Device::cuda).data(), there.data());
    EXPECT_EQ(runtime->copies.size(), 1u);
    EXPECT_EQ(Uploaded<int32_t>(other, Device::cuda).data()[2], 7);
    EXPECT_EQ(runtime->copies.size(), 2u);
  }
  {  // the cache has a limit, and at the limit cached arrays are not sent again
    std::vector<int32_t> rows(1 << 18);
    const auto copies = [&](int32_t first) {
      rows[0] = first;
      const size_t before = runtime->copies.size();
      EXPECT_EQ(Uploaded<int32_t>(rows, Device::cuda).data()[0], first);
      return runtime->copies.size() - before;
    };
    for (int32_t i = 0; i < 15; ++i) EXPECT_EQ(copies(100 + i), 1u);
    EXPECT_EQ(copies(100), 0u);
    for (int32_t i = 0; i < 15; ++i) EXPECT_EQ(copies(100 + i), 0u) << i;
    EXPECT_EQ(copies(200), 1u);
    EXPECT_EQ(copies(100), 1u);
  }
  {  // another device has an empty cache, and large arrays are sent each time
    const auto second = std::make_shared<tensor::FakeRuntime>();
    tensor::use_device(std::make_shared<tensor::DevicePool>(second));
    const std::vector<int32_t> rows = {4, 5, 6}, many(1 << 19);
    EXPECT_EQ(Uploaded<int32_t>(rows, Device::cuda).data()[1], 5);
    EXPECT_EQ(second->copies.size(), 1u);
    EXPECT_NE(Uploaded<int32_t>(many, Device::cuda).data(), nullptr);
    EXPECT_NE(Uploaded<int32_t>(many, Device::cuda).data(), nullptr);
    EXPECT_EQ(second->copies.size(), 3u);
  }
  const Tensor here = Tensor::zeros({2}, DType::f32);
  const Tensor there = here.to(Device::cuda);
  require_beside("op", "y", there, Device::cuda);
  require_beside("op", "y", Tensor::empty({2}, DType::f32, Device::meta), Device::cuda);
  require_beside("op", "y", here, Device::meta);
  require_beside("op", "y", {}, Device::cuda);
  try {
    require_beside("op", "y", here, Device::cuda);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "op: y is on cpu, x on cuda; put both on one device");
  }
  tensor::use_device(nullptr);
}

}  // namespace
}  // namespace tessera::ops
