#include "models/moe_layer.h"

#include "base/fail.h"
#include "ops/elementwise.h"

namespace tessera::models {
namespace {

using nn::DType;
using nn::Tensor;

ops::Activation activation_of(ExpertActivation activation) {
  switch (activation) {
    case ExpertActivation::swiglu: return ops::Activation::swiglu;
    case ExpertActivation::relu: return ops::Activation::relu;
    case ExpertActivation::gelu: return ops::Activation::gelu_erf;
    case ExpertActivation::gelu_tanh: return ops::Activation::gelu_tanh;
    case ExpertActivation::silu: return ops::Activation::silu;
  }
  return ops::Activation::none;
}

// Stacked tensors of all experts.
struct Bank {
  Tensor gate, up, down, up_bias, down_bias;  // undefined: none

  Bank(const MoeLayerConfig& c, ExpertActivation activation, const nn::Weights& weights) {
    const auto floats = [&](const std::string& name, const tensor::Shape& shape) {
      const Tensor all = weights.get(name, shape);
      require(tensor::is_float(all.dtype()), ErrorCode::model, "tensor '{}' is {}; expected floats",
              name, tensor::name_of(all.dtype()));
      return all;
    };
    const tensor::Shape wide{c.experts, c.inner, c.hidden}, narrow{c.experts, c.hidden, c.inner};
    if (activation == ExpertActivation::swiglu) {
      gate = floats("swiglu.gate_proj", wide);
      up = floats("swiglu.up_proj", wide);
      down = floats("swiglu.down_proj", narrow);
      return;
    }
    up = floats("mlp.up.weight", wide);
    down = floats("mlp.down.weight", narrow);
    if (weights.has("mlp.up.bias")) up_bias = floats("mlp.up.bias", {c.experts, c.inner});
    if (weights.has("mlp.down.bias")) down_bias = floats("mlp.down.bias", {c.experts, c.hidden});
  }

  // Drops the axis of experts.
  static Tensor of(const Tensor& all, int64_t e) {
    if (!all.defined()) return {};
    const Tensor matrix = all.slice(0, e, e + 1).contiguous();
    return all.rank() == 3 ? matrix.reshape({all.size(1), all.size(2)})
                           : ops::cast(matrix.reshape({all.size(1)}), DType::f32);
  }
};

}  // namespace

MoeLayerConfig moe_layer_of(const Source& source) {
  const base::ConfigReader reader(source.config, source.where);
  return {reader.size("hidden_size"), reader.size("intermediate_size"), reader.size("num_experts")};
}

std::string gate_of(const MoeLayerForm& form, const nn::Weights& weights) {
  return weights.has(form.gate) ? form.gate : "gate." + form.gate + ".weight";
}

nn::Geometry geometry_of(const MoeLayerConfig& config, const MoeLayerForm& form) {
  require(form.top_k <= config.experts, ErrorCode::usage,
          "`moe` top_k={}: the layer has {} experts; choose 1 to {}", form.top_k, config.experts,
          config.experts);
  nn::Geometry geometry;
  geometry.blocks = 1;
  geometry.hidden = config.hidden;
  geometry.experts = {{0, static_cast<int>(config.experts), form.top_k, config.inner}};
  return geometry;
}

MoeLayer::MoeLayer(const MoeLayerConfig& config, const MoeLayerForm& form,
                   const nn::Weights& weights, const nn::Portion& portion, DType dtype) {
  router.weight = weights.matrix(gate_of(form, weights), config.experts, config.hidden, DType::f32);
  router.options.top_k = form.top_k;
  router.options.renormalise = form.renormalise;
  const Bank bank(config, form.experts, weights);
  const DType packed = portion.expert_dtype.value_or(dtype);
  auto routed = std::make_shared<std::vector<ops::Expert>>();
  for (int64_t e = 0; e < config.experts; ++e) {
    ops::Expert& expert = routed->emplace_back();
    if (!portion.holds_expert(e)) continue;
    const Tensor gate = Bank::of(bank.gate, e), up = Bank::of(bank.up, e);
    expert.up =
        gate.defined() ? ops::pack_paired_weight(gate, up, packed) : ops::pack_weight(up, packed);
    expert.down = ops::pack_weight(Bank::of(bank.down, e), packed);
    expert.activation = activation_of(form.experts);
    expert.up_bias = Bank::of(bank.up_bias, e);
    expert.down_bias = Bank::of(bank.down_bias, e);
  }
  experts.routed = std::move(routed);
}

}  // namespace tessera::models
