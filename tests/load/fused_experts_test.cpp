#include "load/fused_experts.h"

#include <gtest/gtest.h>

#include <numeric>

#include "scratch_folder.h"

namespace tessera::load {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor counted(const tensor::Shape& shape) {
  std::vector<float> values(size_t(shape.elements()));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::from(std::span<const float>(values), shape);
}

TensorSet written(const ScratchFolder& folder, const std::map<std::string, Tensor>& tensors) {
  write_safetensors(folder.path("model.safetensors"), tensors);
  return open_component(folder.path());
}

TEST(FusedExperts, HaveNamesOfTheirOwn) {
  const ScratchFolder folder;
  const Tensor both = counted({3, 4, 5}), down = counted({3, 5, 2});
  const TensorSet fused = written(
      folder,
      {{"l.experts.gate_up_proj", both}, {"l.experts.down_proj", down}, {"w", counted({2})}});
  const TensorSet single = with_single_experts(fused);
  EXPECT_EQ(single.size(), 3 * 3 + 1u);
  EXPECT_EQ(single.bytes(), fused.bytes());
  for (int64_t e = 0; e < 3; ++e) {
    const std::string name = "l.experts." + std::to_string(e) + ".";
    EXPECT_EQ(single.get(name + "gate_proj.weight").to_floats(),
              both.slice(0, e, e + 1).slice(1, 0, 2).contiguous().to_floats());
    EXPECT_EQ(single.get(name + "up_proj.weight").to_floats(),
              both.slice(0, e, e + 1).slice(1, 2, 4).contiguous().to_floats());
    EXPECT_EQ(single.get(name + "down_proj.weight").to_floats(),
              down.slice(0, e, e + 1).contiguous().to_floats());
    EXPECT_EQ(single.get(name + "up_proj.weight").shape(), (tensor::Shape{2, 5}));
  }
  EXPECT_EQ(single.get("w").to_floats(), fused.get("w").to_floats());
}

TEST(FusedExperts, OthersStayAsTheyAre) {
  const ScratchFolder folder;
  const TensorSet odd =
      written(folder, {{"a.experts.gate_up_proj", counted({2, 3, 2})},  // no halves
                       {"b.experts.down_proj", counted({4, 2})},        // no experts
                       {"c.experts.down_proj", counted({1, 2, 2})},
                       {"c.experts.0.down_proj.weight", counted({2, 2})},
                       {"d.experts.down_proj", Tensor::zeros({0, 2, 2}, DType::f32)},
                       {"gate_up_proj", counted({2, 4, 2})}});
  EXPECT_EQ(with_single_experts(odd).names(), odd.names());
}

}  // namespace
}  // namespace tessera::load
