#include "models/moe_layer.h"

#include <gtest/gtest.h>

#include "models/named_noise.h"
#include "tessera/error.h"

namespace tessera::models {
namespace {

using nn::DType;
using nn::Tensor;

// A folder without some tensors.
class Lacking : public NamedNoise {
 public:
  explicit Lacking(std::string end) : end_(std::move(end)) {}
  bool has(const std::string& name) const override { return !name.ends_with(end_); }

 private:
  std::string end_;
};

constexpr MoeLayerConfig kConfig{6, 5, 3};

MoeLayerForm form(ExpertActivation experts) {
  return {.gate = "a", .top_k = 2, .experts = experts, .renormalise = true};
}

std::string refusal(const std::function<void()>& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code);
    return e.what();
  }
  return "";
}

TEST(MoeLayer, ConfigurationHoldsThreeSizes) {
  const auto read = [](const char* text) {
    const base::Json json = base::Json::parse(text);
    return moe_layer_of({json, "config.json"});
  };
  const MoeLayerConfig c =
      read(R"({"hidden_size": 24, "intermediate_size": 40, "num_experts": 4})");
  EXPECT_EQ(c.hidden, 24);
  EXPECT_EQ(c.inner, 40);
  EXPECT_EQ(c.experts, 4);
  const auto says =
      refusal([&] { read(R"({"hidden_size": 24, "intermediate_size": 40})"); }, ErrorCode::model);
  EXPECT_NE(says.find("num_experts"), std::string::npos) << says;
  EXPECT_NE(
      refusal([&] { read(R"({"hidden_size": 0, "intermediate_size": 1, "num_experts": 1})"); },
              ErrorCode::model),
      "");
}

TEST(MoeLayer, IsWhatItsFormAsksFor) {
  for (const ExpertActivation act : {ExpertActivation::swiglu, ExpertActivation::relu}) {
    const NamedNoise weights;
    const MoeLayer layer(kConfig, form(act), weights, {}, DType::f32);
    EXPECT_EQ(layer.router.options.top_k, 2);
    EXPECT_TRUE(layer.router.options.renormalise);
    ASSERT_EQ(layer.experts.experts(), 3);
    const bool swiglu = act == ExpertActivation::swiglu;
    // Expert 2 by itself, from the tensors of all.
    const auto second = [&](const std::string& name, const tensor::Shape& shape) {
      return weights.get(name, shape).slice(0, 2, 3).contiguous();
    };
    ops::Expert one;
    if (swiglu) {
      one = {
          ops::pack_paired_weight(second("swiglu.gate_proj", {3, 5, 6}).reshape({5, 6}),
                                  second("swiglu.up_proj", {3, 5, 6}).reshape({5, 6}), DType::f32),
          ops::pack_weight(second("swiglu.down_proj", {3, 6, 5}).reshape({6, 5}), DType::f32)};
    } else {
      one = {ops::pack_weight(second("mlp.up.weight", {3, 5, 6}).reshape({5, 6}), DType::f32),
             ops::pack_weight(second("mlp.down.weight", {3, 6, 5}).reshape({6, 5}), DType::f32),
             ops::Activation::relu, second("mlp.up.bias", {3, 5}).reshape({5}),
             second("mlp.down.bias", {3, 6}).reshape({6})};
    }
    const Tensor x = weights.get("x", {4, 6});
    const auto rows = [&](const std::vector<ops::Expert>& bank, int32_t expert) {
      const std::vector<int32_t> ids(4, expert);
      return ops::expert_rows(x, {Tensor::from(std::span<const int32_t>(ids), {4, 1}), {}}, bank)
          .to_floats();
    };
    EXPECT_EQ(rows(*layer.experts.routed, 2), rows({one}, 0));
  }
}

TEST(MoeLayer, BiasesMayBeMissing) {
  const MoeLayer none(kConfig, form(ExpertActivation::gelu), Lacking(".bias"), {}, DType::f32);
  EXPECT_FALSE(none.experts.routed->front().up_bias.defined());
  EXPECT_FALSE(none.experts.routed->front().down_bias.defined());
  const MoeLayer one(kConfig, form(ExpertActivation::gelu), Lacking("up.bias"), {}, DType::f32);
  EXPECT_FALSE(one.experts.routed->front().up_bias.defined());
  EXPECT_TRUE(one.experts.routed->front().down_bias.defined());
}

TEST(MoeLayer, HasTheExpertsOfItsPortion) {
  nn::Portion portion;
  portion.experts = {true, false, true};
  portion.expert_dtype = DType::i8;
  const MoeLayer layer(kConfig, form(ExpertActivation::silu), NamedNoise(), portion, DType::bf16);
  EXPECT_FALSE(layer.experts.routed->at(1).up);
  EXPECT_EQ(layer.experts.routed->at(2).down->dtype, DType::i8);
}

TEST(MoeLayer, AGateGoesByItsNameOrAsAWhole) {
  EXPECT_EQ(gate_of(form(ExpertActivation::relu), Lacking("a")), "gate.a.weight");
  EXPECT_EQ(gate_of({.gate = "gate.b.weight"}, NamedNoise()), "gate.b.weight");
}

TEST(MoeLayer, PlansSeeItsExperts) {
  const nn::Geometry g = geometry_of(kConfig, form(ExpertActivation::relu));
  ASSERT_EQ(g.experts.size(), 1u);
  EXPECT_EQ(g.experts[0].experts, 3);
  EXPECT_EQ(g.experts[0].top_k, 2);
  EXPECT_EQ(g.experts[0].inner, 5);
  const auto says =
      refusal([] { geometry_of(kConfig, {.gate = "a", .top_k = 4}); }, ErrorCode::usage);
  EXPECT_NE(says.find("top_k=4: the layer has 3 experts"), std::string::npos) << says;
}

}  // namespace
}  // namespace tessera::models
