#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/leg.h"
// The leg first: the sources below depend on it.
#include "fused/cuda/operator.h"
#include "kernels/closeness.h"
#include "kernels/experts_layer.h"

namespace tessera::fused {

using kernels::Activation, kernels::here, kernels::kThere, kernels::Layer;
using tensor::DType, tensor::Tensor;

struct Case {
  int experts = 4, slots = 2;
  std::vector<int64_t> tokens = {5, 3};  // by rank
  int64_t hidden = 8, inner = 8;
  DType weights = DType::f32, dtype = DType::f32;
  Activation activation = Activation::swiglu;
  bool biased = false, shared = false;
  int processors = 2, parts = 0;
  int64_t window = 0, block = 4, patience = 1000000;
  int most_slots = 0;  // ids beyond are -1; 0: all are experts
  int only = -1;       // all pairs go to this expert
  bool apart = false;  // each rank has a GPU
  int hosts = 1;       // ranks are on hosts in turn, with far puts between them
  uint32_t seed = 1;

  int ranks() const { return static_cast<int>(tokens.size()); }
};

/// All ranks of an MoE layer on the emulated GPU.
class DeviceWorld {
 public:
  explicit DeviceWorld(const Case& is)
      : is_(is),
        layer_(is.hidden, is.inner, is.experts, is.weights == DType::f16 ? DType::f32 : is.weights,
               kernels::Isa::reference, is.activation, is.biased) {
    for (auto& w : layer_.weights)
      weights_.push_back(kThere(is.weights == DType::f16 ? halved(w) : w));
    for (const auto& b : layer_.up_biases) up_biases_.push_back(kThere(b));
    for (const auto& b : layer_.down_biases) down_biases_.push_back(kThere(b));
    for (int e = 0; e < is.experts; ++e) owner_.push_back(e * is.ranks() / is.experts);
    bank_.resize(static_cast<size_t>(is.ranks()));
    for (size_t e = 0; e < owner_.size(); ++e) bank_[size_t(owner_[e])].push_back(view(e));
    open({is.ranks(), owner_, *std::max_element(is.tokens.begin(), is.tokens.end()), is.slots,
          is.hidden, is.inner, is.dtype, is.weights, is.activation},
         {is.processors, is.parts, is.window, is.block, is.patience});
  }

  /// A layer of new tokens; the sums of each rank.
  std::vector<Tensor> run(uint32_t step = 0) {
    make_inputs(step);
    std::vector<cuda::DeviceOperator::Layer> layers;
    std::vector<Tensor> y;
    for (Rank& r : ranks_) {
      y.push_back(kThere(kernels::random_tensor(r.x.shape(), is_.dtype, 77)));
      layers.push_back(
          {r.there.raw(), is_.hidden, r.x.size(0), static_cast<const int32_t*>(r.ids_there.raw()),
           r.weights_there.data<float>(), r.shared_there.defined() ? r.shared_there.raw() : nullptr,
           is_.hidden, bank_[layers.size()].data(), y.back().raw()});
    }
    run_all(layers);
    for (Tensor& one : y) one = here(one);
    return y;
  }

  /// The same by the launches of a single rank.
  std::vector<Tensor> separate() const {
    std::vector<Tensor> all;
    for (const Rank& r : ranks_)
      all.push_back(summed(r, layer_.run(kThere, kernels::cuda::experts, r.there, r.ids), kThere,
                           kernels::cuda::combine));
    return all;
  }
  /// The definition of correct results.
  std::vector<Tensor> reference() const {
    std::vector<Tensor> all;
    for (const Rank& r : ranks_)
      all.push_back(summed(r, layer_.run(kernels::kHost, kernels::reference::experts, r.x, r.ids),
                           kernels::kHost, kernels::reference::combine));
    return all;
  }
  cuda::DeviceOperator& one() { return *operators_.front(); }

 private:
  void open(const cuda::DeviceOperator::Size& size, const cuda::DeviceOperator::Manner& manner) {
    if (!is_.apart) {
      operators_.push_back(std::make_unique<cuda::DeviceOperator>(size, manner));
      return;
    }
    const int64_t bytes = cuda::DeviceOperator::layout_of(size, manner).bytes();
    cuda::DeviceOperator::Peers peers;
    for (int r = 0; r < size.ranks; ++r) {
      buffers_.push_back(kThere(Tensor::zeros({bytes}, DType::u8)));
      peers.buffers.push_back(buffers_.back().data<std::byte>());
    }
    const std::vector<std::byte*> all = peers.buffers;
    for (peers.rank = 0; peers.rank < size.ranks; ++peers.rank) {
      for (int r = 0; r < size.ranks; ++r)
        peers.buffers[size_t(r)] =
            r % is_.hosts == peers.rank % is_.hosts ? all[size_t(r)] : nullptr;
      operators_.push_back(std::make_unique<cuda::DeviceOperator>(size, manner, peers));
    }
#if !defined(TESSERA_ON_GPU)
    emulation::place_there = [all, bytes](const void* own, int rank) {
      const auto* const at = static_cast<const std::byte*>(own);
      for (std::byte* const begin : all)
        if (at >= begin && at < begin + bytes) return all[size_t(rank)] + (at - begin);
      throw std::logic_error("a far put from other memory than a symmetric buffer");
    };
#endif
  }
  void run_all(const std::vector<cuda::DeviceOperator::Layer>& layers) {
    if (!is_.apart) return operators_.front()->run(layers);
#if !defined(TESSERA_ON_GPU)
    emulation::Together gpus;
    for (size_t r = 0; r < layers.size(); ++r) operators_[r]->start({&layers[r], 1});
    gpus.run();
    for (const auto& each : operators_) each->finish();
#endif
  }
  // Weights in f16, which are not packed otherwise; those of f32 are rounded, too.
  static kernels::PackedWeight halved(kernels::PackedWeight& w) {
    kernels::PackedWeight made = w;
    made.dtype = DType::f16;
    made.data = Tensor::empty(w.data.shape(), DType::f16);
    for (int64_t i = 0; i < w.data.elements(); ++i) {
      made.data.data<tensor::Float16>()[i] = tensor::to_float16(w.data.data<float>()[i]);
      w.data.data<float>()[i] = tensor::to_float(made.data.data<tensor::Float16>()[i]);
    }
    return made;
  }
  struct Rank {
    Tensor x, weights, shared;
    std::vector<int32_t> ids;
    Tensor there, ids_there, weights_there, shared_there;
  };
  kernels::ExpertView view(size_t e) const {
    kernels::ExpertView one{&weights_[2 * e], &weights_[2 * e + 1]};
    if (!up_biases_.empty()) one.up_bias = up_biases_[e].data<float>();
    if (!down_biases_.empty()) one.down_bias = down_biases_[e].data<float>();
    return one;
  }
  void make_inputs(uint32_t step) {
    ranks_.clear();
    std::mt19937 random(is_.seed * 1000 + step);
    for (const int64_t tokens : is_.tokens) {
      Rank& r = ranks_.emplace_back();
      const auto seed = static_cast<uint32_t>(random() % 10000);
      r.x = kernels::random_tensor({tokens, is_.hidden}, is_.dtype, seed);
      r.weights = kernels::random_tensor({tokens, is_.slots}, DType::f32, seed + 1);
      if (is_.shared) r.shared = kernels::random_tensor({tokens, is_.hidden}, is_.dtype, seed + 2);
      for (int64_t t = 0; t < tokens; ++t) {
        std::vector<int32_t> order(size_t(is_.experts));
        for (size_t e = 0; e < order.size(); ++e) order[e] = int32_t(e);
        std::shuffle(order.begin(), order.end(), random);
        for (int64_t j = 0; j < is_.slots; ++j) {
          const bool none =
              is_.most_slots > 0 && int(random() % unsigned(is_.slots)) >= is_.most_slots;
          r.ids.push_back(none ? -1 : is_.only >= 0 ? is_.only : order[size_t(j)]);
        }
      }
      r.there = kThere(r.x);
      r.ids_there = kThere(r.ids);
      r.weights_there = kThere(r.weights);
      if (is_.shared) r.shared_there = kThere(r.shared);
    }
  }
  Tensor summed(const Rank& r, const Tensor& made, const kernels::Where& at,
                void (*combine)(const kernels::CombineArgs&)) const {
    const Tensor rows = at(made), weights = at(r.weights),
                 shared = is_.shared ? at(r.shared) : Tensor();
    const Tensor y = at(kernels::random_tensor(r.x.shape(), is_.dtype, 78));
    combine({.rows = rows.raw(),
             .dtype = is_.dtype,
             .row_stride = is_.hidden,
             .tokens = r.x.size(0),
             .slots = is_.slots,
             .hidden = is_.hidden,
             .weights = weights.data<float>(),
             .shared = shared.defined() ? shared.raw() : nullptr,
             .shared_stride = is_.hidden,
             .y = y.raw()});
    return here(y);
  }

  const Case is_;
  Layer layer_;
  std::vector<kernels::PackedWeight> weights_;
  std::vector<Tensor> up_biases_, down_biases_;
  std::vector<int> owner_;
  std::vector<std::vector<kernels::ExpertView>> bank_;
  std::vector<Tensor> buffers_;  // with GPUs apart
  std::vector<std::unique_ptr<cuda::DeviceOperator>> operators_;
  std::vector<Rank> ranks_;
};

/// Sets what an emulated GPU has, until destruction; a real one has its own.
class EmulatedGpuHas {
 public:
#if defined(TESSERA_ON_GPU)
  explicit EmulatedGpuHas(bool, int = 0) {}
#else
  explicit EmulatedGpuHas(bool warpgroups, int blocks = 12) {
    emulation::warpgroups = warpgroups;
    emulation::resident_blocks = blocks;
  }
  ~EmulatedGpuHas() {
    emulation::warpgroups = false;
    emulation::resident_blocks = 12;
    emulation::order = {};
    emulation::backwards = false;
  }
#endif
  EmulatedGpuHas(const EmulatedGpuHas&) = delete;
  EmulatedGpuHas& operator=(const EmulatedGpuHas&) = delete;
};

/// More of a test's cases with TESSERA_FUSED=long.
inline uint32_t amount(uint32_t few, uint32_t many) {
  const char* const how = std::getenv("TESSERA_FUSED");
  return how && std::string(how) == "long" ? many : few;
}

/// Seeds of a test's cases: as many, or with TESSERA_FUSED=FIRST:END these.
inline std::vector<uint32_t> seeds(uint32_t few, uint32_t many) {
  uint32_t first = 0, end = amount(few, many);
  const char* const how = std::getenv("TESSERA_FUSED");
  if (how && std::strchr(how, ':') && std::sscanf(how, "%u:%u", &first, &end) != 2)
    throw std::invalid_argument(how);
  std::vector<uint32_t> all;
  for (; first < end; ++first) all.push_back(first);
  return all;
}

/// True if all ranks' sums are the same bits.
inline bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  for (size_t r = 0; r < a.size(); ++r)
    if (!kernels::same_bits(a[r], b[r])) return false;
  return a.size() == b.size();
}

}  // namespace tessera::fused
