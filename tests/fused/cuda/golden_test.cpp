// The golden MoE layers through the kernel, on one to four virtual ranks.
#include "fused/cuda/device_world.h"
// Include the world first: the sources below depend on the emulation.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "load/safetensors.h"
#include "test_paths.h"

namespace tessera::fused {
namespace {

struct GoldenLayer {
  explicit GoldenLayer(const std::string& name)
      : folder(std::string(TESSERA_TEST_DATA) + "/moe/" + name),
        io(folder + "/io.safetensors"),
        model(folder + "/model/model.safetensors"),
        about(base::read_json(folder + "/case.json")) {}
  std::string folder;
  load::SafetensorsFile io, model;
  base::Json about;
};

Activation activation_of(const std::string& name) {
  return name == "swiglu" ? Activation::swiglu
         : name == "relu" ? Activation::relu
         : name == "silu" ? Activation::silu
         : name == "gelu" ? Activation::gelu_erf
                          : Activation::gelu_tanh;
}

/// Experts of a softmax router, the largest first.
struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};
Routed routed(const Tensor& x, const Tensor& gate, int64_t k, bool renormalise) {
  Routed made;
  const int64_t experts = gate.size(0), hidden = gate.size(1);
  for (int64_t t = 0; t < x.size(0); ++t) {
    std::vector<double> score(static_cast<size_t>(experts));
    double sum = 0, chosen = 0;
    for (int64_t e = 0; e < experts; ++e) {
      double logit = 0;
      for (int64_t c = 0; c < hidden; ++c)
        logit += double(x.data<float>()[t * hidden + c]) * gate.data<float>()[e * hidden + c];
      sum += score[size_t(e)] = std::exp(logit);
    }
    std::vector<int32_t> order(score.size());
    for (size_t e = 0; e < order.size(); ++e) order[e] = int32_t(e);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return score[size_t(a)] > score[size_t(b)]; });
    for (int64_t j = 0; j < k; ++j) chosen += score[size_t(order[size_t(j)])];
    for (int64_t j = 0; j < k; ++j) {
      const int32_t e = order[size_t(j)];
      made.ids.push_back(e);
      made.weights.push_back(float(score[size_t(e)] / (renormalise ? chosen : sum)));
    }
  }
  return made;
}

/// The experts of a golden layer on the emulated GPU.
struct Bank {
  std::vector<kernels::PackedWeight> weights;
  std::vector<Tensor> biases;
  std::vector<kernels::ExpertView> views;

  Bank(const GoldenLayer& golden, Activation kind, int64_t experts) {
    const bool paired = kernels::is_paired(kind);
    const auto part = [&](const std::string& name, int64_t e) {
      const Tensor whole = golden.model.get(name), one = whole.slice(0, e, e + 1).contiguous();
      return whole.rank() == 3 ? one.reshape({whole.size(1), whole.size(2)})
                               : one.reshape({whole.size(1)});
    };
    for (int64_t e = 0; e < experts; ++e) {
      const Tensor up = paired ? part("swiglu.up_proj", e) : Tensor();
      weights.push_back(
          kThere(kernels::pack_weight(part(paired ? "swiglu.gate_proj" : "mlp.up.weight", e), up,
                                      DType::f32, kernels::Isa::reference)));
      weights.push_back(
          kThere(kernels::pack_weight(part(paired ? "swiglu.down_proj" : "mlp.down.weight", e), {},
                                      DType::f32, kernels::Isa::reference)));
      if (paired) continue;
      biases.push_back(kThere(part("mlp.up.bias", e)));
      biases.push_back(kThere(part("mlp.down.bias", e)));
    }
    for (size_t e = 0; e < size_t(experts); ++e) {
      views.push_back({&weights[2 * e], &weights[2 * e + 1]});
      if (paired) continue;
      views.back().up_bias = biases[2 * e].data<float>();
      views.back().down_bias = biases[2 * e + 1].data<float>();
    }
  }
};

double largest_error(const GoldenLayer& golden, const base::Json& run, int ranks) {
  const Tensor x = golden.io.get(run.at("x")),
               want = golden.io.get(run.at("name").get<std::string>() + ".y");
  const Tensor gate = golden.model.get(run.at("gate"));
  const int64_t k = run.at("k"), experts = gate.size(0), tokens = x.size(0);
  const Activation kind = activation_of(run.at("experts"));
  const Bank bank(golden, kind, experts);
  const Routed routing = routed(x, gate, k, run.at("renormalise"));
  std::vector<int> owner;
  for (int64_t e = 0; e < experts; ++e) owner.push_back(int(e % ranks));  // strided
  std::vector<std::vector<kernels::ExpertView>> banks(static_cast<size_t>(ranks));
  for (size_t e = 0; e < owner.size(); ++e) banks[size_t(owner[e])].push_back(bank.views[e]);
  cuda::DeviceOperator one(
      {ranks, owner, tokens, k, x.size(1), bank.weights[0].n, DType::f32, DType::f32, kind},
      {.processors = 2, .window = 2, .block = 16});
  std::vector<cuda::DeviceOperator::Layer> layers;
  std::vector<Tensor> kept, y;
  for (int r = 0; r < ranks; ++r) {
    const int64_t first = tokens * r / ranks, last = tokens * (r + 1) / ranks, n = last - first;
    const auto at = [&](const auto& all) {
      kept.push_back(kThere(std::vector(all.begin() + first * k, all.begin() + last * k)));
      return kept.back().raw();
    };
    kept.push_back(kThere(x.slice(0, first, last).contiguous()));
    y.push_back(kThere(kernels::random_tensor({n, x.size(1)}, DType::f32, 5)));
    const void* const rows = kept.back().raw();
    layers.push_back({rows, x.size(1), n, static_cast<const int32_t*>(at(routing.ids)),
                      static_cast<const float*>(at(routing.weights)), nullptr, 0,
                      banks[size_t(r)].data(), y.back().raw()});
  }
  one.run(layers);
  double worst = 0;
  for (int r = 0; r < ranks; ++r)
    if (y[size_t(r)].size(0) > 0)
      worst = std::max(worst, kernels::worst_difference(
                                  here(y[size_t(r)]),
                                  want.slice(0, tokens * r / ranks, tokens * (r + 1) / ranks)));
  return worst;
}

// Each run on some rank count; with TESSERA_FUSED=long on all.
TEST(DeviceGolden, LayersOnOneToFourRanks) {
  const EmulatedGpuHas room(false, 16);
  int runs = 0;
  for (const char* name : {"moe_layer_e4", "moe_layer_e8", "moe_layer_e64"}) {
    const GoldenLayer golden(name);
    for (const base::Json& run : golden.about.at("runs")) {
      if (!run.at("capacity").is_null()) continue;  // drops come before the operator
      const int first = runs++ % 4;
      for (int i = 0; i < int(amount(1, 4)); ++i)
        EXPECT_LT(largest_error(golden, run, 1 + (first + i) % 4), 2e-5)
            << name << " " << run.at("name");
    }
  }
  EXPECT_GT(runs, 100);
}

}  // namespace
}  // namespace tessera::fused
