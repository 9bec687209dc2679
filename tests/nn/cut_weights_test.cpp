#include "nn/cut_weights.h"

#include <gtest/gtest.h>

#include "tessera/error.h"

namespace tessera::nn {
namespace {

using tensor::Tensor;

// Every tensor counts up from zero.
class Counting : public Weights {
 public:
  bool has(const std::string& name) const override { return name != "missing"; }
  Tensor get(const std::string&, const tensor::Shape& shape) const override {
    Tensor x = Tensor::empty(shape, tensor::DType::f32);
    for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = static_cast<float>(i);
    return x;
  }
  ops::Weight matrix(const std::string& name, int64_t n, int64_t k,
                     ops::DType dtype) const override {
    return ops::pack_weight(get(name, {n, k}), dtype);
  }
  ops::Weight paired(const std::string& gate, const std::string& up, int64_t n, int64_t k,
                     ops::DType dtype) const override {
    return ops::pack_paired_weight(get(gate, {n, k}), get(up, {n, k}), dtype);
  }
  ops::ConvWeight conv(const std::string&, const std::string&, const tensor::Shape&,
                       ops::DType) const override {
    return {};
  }
  Tensor vector(const std::string& name, int64_t n) const override { return get(name, {n}); }
};

CutWeights weights(const Weights& whole) {
  return {whole, [](const std::string& name) -> std::optional<Cut> {
            if (name == "rows") return Cut{0, 4, {{1, 3}}};
            if (name == "columns") return Cut{1, 4, {{2, 4}}};
            if (name == "fused") return Cut{1, 6, {{1, 2}, {4, 5}}};
            return {};
          }};
}

TEST(CutWeights, TakesRangesOfOneAxisAndLeavesOthersWhole) {
  const Counting whole;
  const CutWeights mine = weights(whole);
  EXPECT_EQ(mine.get("rows", {2, 2}).to_floats(), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(mine.get("columns", {2, 2}).to_floats(), (std::vector<float>{2, 3, 6, 7}));
  EXPECT_EQ(mine.get("fused", {2, 2, 1}).to_floats(), (std::vector<float>{1, 4, 7, 10}));
  EXPECT_EQ(mine.get("other", {2}).to_floats(), (std::vector<float>{0, 1}));
  EXPECT_EQ(mine.vector("rows", 2).to_floats(), (std::vector<float>{1, 2}));
  EXPECT_FALSE(mine.has("missing"));
}

TEST(CutWeights, PacksThePartForProducts) {
  const Counting whole;
  const CutWeights mine = weights(whole);
  const auto x = Tensor::from(std::span<const float>(std::vector<float>{1, 10}), {1, 2});
  EXPECT_EQ(ops::matmul(x, mine.matrix("columns", 2, 2, ops::DType::f32)).to_floats(),
            (std::vector<float>{32, 76}));
  EXPECT_EQ(ops::matmul(x, mine.matrix("other", 2, 2, ops::DType::f32)).to_floats(),
            (std::vector<float>{10, 32}));
  EXPECT_EQ(mine.paired("rows", "rows", 2, 2, ops::DType::f32)->n, 2);
}

TEST(CutWeights, RefusesAnotherPartAndSplitFilters) {
  const Counting whole;
  const CutWeights mine = weights(whole);
  EXPECT_THROW(mine.get("rows", {3, 2}), Error);
  EXPECT_THROW(mine.conv("rows", "", {2, 1, 1, 1}, ops::DType::f32), Error);
}

}  // namespace
}  // namespace tessera::nn
