#pragma once

#include <cmath>
#include <vector>

#include "kernels/experts.h"
#include "kernels/nibbles.h"
#include "kernels/random_values.h"
#include "kernels/table.h"
#include "kernels/where.h"

namespace tessera::kernels {

using tensor::DType;
using tensor::Tensor;

// A layer of random experts; output that a kernel leaves unwritten stays random.
struct Layer {
  // dtype i8: the weights of bf16, quantised; u8: in nibbles.
  Layer(int64_t hidden_, int64_t inner_, int count, DType packed, Isa isa_ = Isa::reference,
        Activation activation_ = Activation::swiglu, bool biased = false)
      : isa(isa_), hidden(hidden_), inner(inner_), activation(activation_) {
    const bool whole = packed == DType::i8 || packed == DType::u8;
    const DType dtype = whole ? DType::bf16 : packed;
    const auto pack = [&](const Tensor& w, const Tensor& up) {
      if (packed != DType::u8) return pack_weight(w, up, packed, isa);
      return pack_weight(quantise_groups(w), up.defined() ? quantise_groups(up) : StoredMatrix(),
                         DType::i8, isa);
    };
    const float scale = 1 / std::sqrt(static_cast<float>(hidden));
    const bool paired = is_paired(activation);
    for (uint32_t e = 0; e < static_cast<uint32_t>(count); ++e) {
      const Tensor up = paired ? random_tensor({inner, hidden}, dtype, 3 * e + 1, scale) : Tensor{};
      weights.push_back(pack(random_tensor({inner, hidden}, dtype, 3 * e, scale), up));
      if (biased && !paired) up_biases.push_back(random_tensor({inner}, DType::f32, 700 + e));
      if (biased) down_biases.push_back(random_tensor({hidden}, DType::f32, 800 + e));
      weights.push_back(pack(random_tensor({hidden, inner}, dtype, 3 * e + 2, scale), {}));
    }
  }
  Tensor run(const Tensor& x, const std::vector<int32_t>& ids) const {
    return run(kHost, cpu_table(isa).experts, x, ids);
  }
  // x may be a view on the device already; returns rows for the host.
  Tensor run(const Where& at, void (*kernel)(const ExpertsArgs&), const Tensor& given,
             const std::vector<int32_t>& expert_of) const {
    const Tensor x = at(given), ids = at(expert_of);
    const int64_t slots = x.size(0) ? static_cast<int64_t>(expert_of.size()) / x.size(0) : 1;
    const Tensor rows = at(random_tensor({x.size(0) * slots, hidden}, x.dtype(), 99));
    std::vector<PackedWeight> placed;
    for (const PackedWeight& w : weights) placed.push_back(at(w));
    std::vector<ExpertView> bank;
    for (size_t e = 0; e < placed.size(); e += 2) bank.push_back({&placed[e], &placed[e + 1]});
    std::vector<Tensor> biases;
    for (size_t e = 0; e < down_biases.size(); ++e) {
      bank[e].down_bias = biases.emplace_back(at(down_biases[e])).data<float>();
      if (!up_biases.empty()) bank[e].up_bias = biases.emplace_back(at(up_biases[e])).data<float>();
    }
    kernel({.x = x.raw(),
            .dtype = x.dtype(),
            .x_stride = x.stride(0),
            .tokens = x.size(0),
            .slots = slots,
            .hidden = hidden,
            .inner = inner,
            .activation = activation,
            .ids = static_cast<const int32_t*>(ids.raw()),
            .bank = bank.data(),
            .experts = static_cast<int64_t>(bank.size()),
            .rows = rows.raw()});
    return here(rows);
  }
  Isa isa;
  int64_t hidden, inner;
  Activation activation;
  std::vector<PackedWeight> weights;
  std::vector<Tensor> up_biases{}, down_biases{};
};

}  // namespace tessera::kernels
