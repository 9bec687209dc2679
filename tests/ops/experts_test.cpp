#include "ops/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "tensor/scope.h"
#include "tessera/error.h"
#include "test_paths.h"

namespace tessera::ops {
namespace {

using tensor::Device;

// The golden layer: a safetensors file with its own reader, because the layer `load` is above ops.
class Golden {
 public:
  Golden() {
    std::ifstream file(std::string(TESSERA_TEST_DATA) + "/moe/layer_e8.safetensors",
                       std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    uint64_t size = 0;
    std::memcpy(&size, bytes_.data(), 8);
    header_ = nlohmann::json::parse(bytes_.substr(8, size));
    body_ = bytes_.data() + 8 + size;
  }
  Tensor operator[](const std::string& name) const {
    const auto& entry = header_.at(name);
    const auto sizes = entry.at("shape").get<std::vector<int64_t>>();
    Tensor t = Tensor::empty(tensor::Shape(std::span<const int64_t>(sizes)),
                             entry.at("dtype") == "F32" ? DType::f32 : DType::i32);
    std::memcpy(t.raw(), body_ + entry.at("data_offsets")[0].get<size_t>(),
                static_cast<size_t>(t.bytes()));
    return t;
  }
  std::vector<Expert> bank(DType dtype) const {
    const Tensor gate = (*this)["gate"], up = (*this)["up"], down = (*this)["down"];
    std::vector<Expert> bank;
    for (int64_t e = 0; e < 8; ++e) {
      auto matrix = [&](const Tensor& t) {
        return t.slice(0, e, e + 1).contiguous().reshape({t.size(1), t.size(2)});
      };
      bank.push_back(
          {pack_paired_weight(matrix(gate), matrix(up), dtype), pack_weight(matrix(down), dtype)});
    }
    return bank;
  }
  Routing route(const std::string& x, const std::string& gate, int k, bool renormalise) const {
    MatmulOptions f32;
    f32.out_as_input = false;
    const Tensor logits = matmul((*this)[x], pack_weight((*this)["gate." + gate], DType::f32), f32);
    return ops::route(logits, {.top_k = k, .renormalise = renormalise});
  }

 private:
  std::string bytes_;
  nlohmann::json header_;
  const char* body_ = nullptr;
};

double worst(const Tensor& got, const Tensor& want) {
  const std::vector<float> a = got.to_floats(), b = want.to_floats();
  double error = 0, largest = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    error = std::max(error, std::abs(double{a[i]} - b[i]));
    largest = std::max(largest, std::abs(double{b[i]}));
  }
  return error / largest;
}

TEST(Route, EqualsTheGoldenScoresAndIndices) {
  const Golden golden;
  for (const std::string gate : {"uniform", "skew", "empty"})
    for (int k : {1, 2, 8}) {
      const Routing r = golden.route("x", gate, k, false);
      const std::string name = gate + ".k" + std::to_string(k);
      EXPECT_EQ(r.ids.to_ints(), golden[name + ".index"].to_ints()) << name;
      EXPECT_LT(worst(r.weights, golden[name + ".scores"]), 1e-5) << name;
    }
  for (int k : {1, 2, 3}) {
    const Routing r = golden.route("ties.x", "ties", k, false);
    EXPECT_EQ(r.ids.to_ints(), golden["ties.k" + std::to_string(k) + ".index"].to_ints());
  }
}

TEST(Experts, EqualTheGoldenLayer) {
  const Golden golden;
  for (DType dtype : {DType::f32, DType::bf16}) {
    const std::vector<Expert> bank = golden.bank(dtype);
    struct Run {
      const char *name, *gate;
      int k;
      bool renormalise;
    };
    for (const Run& run :
         {Run{"y.uniform.k2.raw", "uniform", 2, false}, Run{"y.skew.k2.renorm", "skew", 2, true},
          Run{"y.empty.k8.raw", "empty", 8, false}, Run{"y.skew.k1.raw", "skew", 1, false}}) {
      const Routing r = golden.route("x", run.gate, run.k, run.renormalise);
      EXPECT_LT(worst(experts(golden["x"], r, bank), golden[run.name]),
                dtype == DType::f32 ? 1e-5 : 2e-2)
          << run.name;
    }
  }
}

TEST(Route, SigmoidRanksByBiasedScoreInsideTheBestGroups) {
  // Two groups of two: scores 0.5, 0.73 | 0.88, 0.27; the bias lifts the first group.
  const Tensor logits = Tensor::from(std::vector<float>{0, 1, 2, -1}, {1, 4});
  RoutingOptions options;
  options.score = RoutingOptions::Score::sigmoid;
  options.top_k = 2;
  options.renormalise = true;
  options.scale = 2.5f;
  options.bias = Tensor::from(std::vector<float>{1, 0.5f, 0, 0}, {4});
  options.groups = 2;
  options.top_groups = 1;
  const Routing r = route(logits, options);
  EXPECT_EQ(r.ids.to_ints(), (std::vector<int64_t>{0, 1}));
  const float a = 0.5f, b = 1 / (1 + std::exp(-1.0f));
  EXPECT_NEAR(r.weights.data<float>()[0], 2.5f * a / (a + b), 1e-6);
  EXPECT_NEAR(r.weights.data<float>()[1], 2.5f * b / (a + b), 1e-6);
  options.top_k = 3;  // fewer remain than requested
  const Routing all = route(logits, options);
  EXPECT_EQ(all.ids.data<int32_t>()[2], -1);
  EXPECT_EQ(all.weights.data<float>()[2], 0);
}

TEST(Route, NeverChoosesNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Routing r = route(Tensor::from(std::vector<float>{nan, nan, nan}, {1, 3}), {.top_k = 2});
  EXPECT_EQ(r.ids.to_ints(), (std::vector<int64_t>{-1, -1}));
}

TEST(Route, RefusesWhatDoesNotFit) {
  const Tensor logits = Tensor::zeros({2, 6}, DType::f32);
  EXPECT_THROW(route(logits, {.top_k = 7}), Error);
  EXPECT_THROW(route(logits, {.top_k = 0}), Error);
  EXPECT_THROW(route(logits, {.groups = 4}), Error);
  EXPECT_THROW(route(logits, {.groups = 2, .top_groups = 3}), Error);
  EXPECT_THROW(route(logits, {.bias = Tensor::zeros({6}, DType::f32)}), Error);
  EXPECT_THROW(route(Tensor::zeros({2, 6}, DType::bf16), {}), Error);
}

std::vector<Expert> random_bank(int count, Device device) {
  std::vector<Expert> bank;
  for (int e = 0; e < count; ++e) {
    const Tensor up = Tensor::zeros({8, 4}, DType::f32, device);
    bank.push_back({pack_paired_weight(up, up, DType::f32),
                    pack_weight(Tensor::zeros({4, 8}, DType::f32, device), DType::f32)});
  }
  return bank;
}

TEST(Experts, MetaCountsTheAssumedShareOfTheWeights) {
  tensor::Scope scope;
  scope.meter = std::make_shared<tensor::Meter>();
  scope.assumptions.touched_experts = 0.5;
  const tensor::BindScope bind(scope);
  const auto bank = random_bank(4, Device::meta);
  const Tensor x = Tensor::empty({10, 4}, DType::f32, Device::meta);
  const Routing r = route(Tensor::empty({10, 4}, DType::f32, Device::meta), {.top_k = 2});
  EXPECT_TRUE(r.ids.is_meta());
  const Tensor y = experts(x, r, bank, x);
  EXPECT_EQ(y.shape(), x.shape());
  const auto entry = scope.meter->entries().at("experts");
  EXPECT_EQ(entry.flops, 6.0 * 20 * 8 * 4);
  const double one = static_cast<double>(bank[0].up->data.bytes() + bank[0].down->data.bytes());
  EXPECT_EQ(entry.bytes, 2 * one + 10 * 4 * 4 + 20 * 4 * 4);
}

TEST(Experts, Int8CountsHalfOfTheBytesToo) {
  const Tensor x = Tensor::empty({64, 256}, DType::bf16, Device::meta);
  const Routing r = route(Tensor::empty({64, 2}, DType::f32, Device::meta), {});
  double bytes[2];
  for (DType dtype : {DType::bf16, DType::i8}) {
    tensor::Scope scope;
    scope.meter = std::make_shared<tensor::Meter>();
    const tensor::BindScope bind(scope);
    const Tensor up = Tensor::empty({512, 256}, DType::bf16, Device::meta);
    const Tensor down = Tensor::empty({256, 512}, DType::bf16, Device::meta);
    const Expert one{pack_paired_weight(up, up, dtype), pack_weight(down, dtype)};
    experts(x, r, {one, one});
    bytes[dtype == DType::i8] = scope.meter->entries().at("experts").bytes - 2 * x.bytes();
    EXPECT_EQ(matmul(x, pack_weight(up, dtype)).shape(), (tensor::Shape{64, 512}));
  }
  EXPECT_NEAR(bytes[1] / bytes[0], 0.5, 0.01);
}

Expert plain_expert(Activation activation, Device device = Device::cpu) {
  return {pack_weight(Tensor::zeros({8, 4}, DType::f32, device), DType::f32),
          pack_weight(Tensor::zeros({4, 8}, DType::f32, device), DType::f32), activation,
          Tensor::zeros({8}, DType::f32, device), Tensor::zeros({4}, DType::f32, device)};
}

TEST(Experts, ExpertsWithoutAGateCostTwoProducts) {
  tensor::Scope scope;
  scope.meter = std::make_shared<tensor::Meter>();
  const tensor::BindScope bind(scope);
  const Expert one = plain_expert(Activation::relu, Device::meta);
  const Tensor x = Tensor::empty({10, 4}, DType::f32, Device::meta);
  const Routing r = route(Tensor::empty({10, 2}, DType::f32, Device::meta), {.top_k = 2});
  EXPECT_EQ(experts(x, r, {one, one}).shape(), x.shape());
  EXPECT_EQ(scope.meter->entries().at("experts").flops, 4.0 * 20 * 8 * 4);
}

TEST(Experts, BiasesStandBehindBothProducts) {
  Expert one = plain_expert(Activation::relu);
  one.down = pack_weight(Tensor::from(std::vector<float>(32, 1), {4, 8}), DType::f32);
  one.up_bias = Tensor::from(std::vector<float>{1, -1, 2, -2, 3, -3, 4, -4}, {8});
  one.down_bias = Tensor::from(std::vector<float>{0, 1, 2, 3}, {4});
  const Routing r = route(Tensor::zeros({1, 1}, DType::f32), {});
  EXPECT_EQ(experts(Tensor::zeros({1, 4}, DType::f32), r, {one}).to_floats(),
            (std::vector<float>{10, 11, 12, 13}));
}

TEST(Experts, RefusesAFormThatDoesNotFit) {
  const Tensor x = Tensor::zeros({3, 4}, DType::f32);
  const Routing r = route(Tensor::zeros({3, 2}, DType::f32), {});
  const Expert relu = plain_expert(Activation::relu);
  EXPECT_NO_THROW(experts(x, r, {relu, relu}));
  const auto refused = [&](const Expert& second) {
    EXPECT_THROW(experts(x, r, {relu, second}), Error);
  };
  refused(plain_expert(Activation::silu));
  refused(random_bank(1, Device::cpu)[0]);
  Expert other = relu;
  other.up_bias = {};
  refused(other);
  for (const Tensor& bias : {Tensor::zeros({4}, DType::f32), Tensor::zeros({8}, DType::bf16),
                             Tensor::zeros({8, 1}, DType::f32)}) {
    other.up_bias = bias;
    refused(other);
  }
  other = relu;
  auto nibbles = std::make_shared<std::decay_t<decltype(*relu.down)>>(*relu.down);
  nibbles->int4 = true;
  other.down = nibbles;
  refused(other);
  EXPECT_THROW(experts(x, r, {other, other}), Error) << "one half in int4";
  other = plain_expert(Activation::swiglu);
  EXPECT_THROW(experts(x, r, {other, other}), Error) << "no pair";
  other = random_bank(1, Device::cpu)[0];
  other.down_bias = Tensor::zeros({4}, DType::f32);
  EXPECT_NO_THROW(experts(x, r, {other, other}));
  other.up_bias = Tensor::zeros({8}, DType::f32);
  EXPECT_THROW(experts(x, r, {other, other}), Error) << "a swiglu has no such bias";
}

TEST(Experts, ZeroTokensAndSharedRows) {
  const auto bank = random_bank(2, Device::cpu);
  const Routing none = route(Tensor::zeros({0, 2}, DType::f32), {});
  EXPECT_EQ(experts(Tensor::zeros({0, 4}, DType::f32), none, bank).shape(), tensor::Shape({0, 4}));
  const Routing one = route(Tensor::zeros({1, 2}, DType::f32), {});
  const Tensor shared = Tensor::from(std::vector<float>{1, 2, 3, 4}, {1, 4});
  EXPECT_EQ(experts(Tensor::zeros({1, 4}, DType::f32), one, bank, shared).to_floats(),
            shared.to_floats());
}

TEST(Experts, RefusesWhatDoesNotFit) {
  const auto bank = random_bank(2, Device::cpu);
  const Tensor x = Tensor::zeros({3, 4}, DType::f32);
  Routing r = route(Tensor::zeros({3, 2}, DType::f32), {});
  EXPECT_THROW(experts(Tensor::zeros({2, 4}, DType::f32), r, bank), Error);
  EXPECT_THROW(experts(Tensor::zeros({3, 5}, DType::f32), r, bank), Error);
  EXPECT_THROW(experts(x, r, {}), Error);
  EXPECT_THROW(experts(x, r, bank, Tensor::zeros({3, 5}, DType::f32)), Error);
  r.ids.data<int32_t>()[1] = 2;
  EXPECT_THROW(experts(x, r, bank), Error);
}

}  // namespace
}  // namespace tessera::ops
