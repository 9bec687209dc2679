#pragma once

#include <span>
#include <vector>

#include "fused/cuda/work.h"
#include "kernels/experts.h"
#include "tensor/tensor.h"

namespace tessera::fused::cuda {

/// An MoE layer of several ranks on one GPU as a single launch: all ranks' blocks are resident,
/// each rank has a scheduler and processors, and rows travel through symmetric buffers in the GPU's
/// memory (FlashDMoE, Aimuyo et al. 2025, section 5). The order of work is the coordinator's, as on
/// CPUs. Rows equal the separate launches of kernels::cuda::experts and combine bit by bit, for the
/// same kind of tiles.
class DeviceOperator {
 public:
  /// The agreement of all ranks.
  struct Size {
    int ranks = 1;
    std::vector<int> owner;  ///< the rank of each expert
    int64_t tokens = 0;      ///< the most of a rank
    int64_t slots = 1;       ///< experts of a token
    int64_t hidden = 0, inner = 0;
    DType dtype = DType::f32, weights = DType::f32;
    Activation activation = Activation::swiglu;
  };
  /// Settings; results do not depend on them. 0: chosen.
  struct Manner {
    int processors = 0;                   ///< blocks of a rank beside its scheduler
    int parts = 0;                        ///< tasks of a tile's products
    int64_t window = 0;                   ///< tiles under way between two ranks
    int64_t block = 64;                   ///< tokens of a combine task
    int64_t patience = int64_t{1} << 21;  ///< turns of a wait without news
  };
  /// A rank's tensors of a layer, in device memory.
  struct Layer {
    const void* x = nullptr;  ///< [tokens, hidden]
    int64_t x_stride = 0, tokens = 0;
    const int32_t* ids = nullptr;    ///< [tokens, slots]
    const float* weights = nullptr;  ///< [tokens, slots]
    const void* shared = nullptr;    ///< [tokens, hidden], or null
    int64_t shared_stride = 0;
    const kernels::ExpertView* bank = nullptr;  ///< the rank's experts
    void* y = nullptr;                          ///< [tokens, hidden]
  };

  /// Throws Error(usage) for sizes that the kernel does not have, and Error(plan) if the blocks are
  /// not resident at once.
  DeviceOperator(Size size, Manner manner);

  /// A layer of all ranks, in rank order: a single launch, and a wait for its end. Throws
  /// Error(usage) for arrays that do not fit, Error(rank) with rank, flag and epoch for an arrival
  /// that never comes, and for all later layers.
  void run(std::span<const Layer> layers);

  int64_t launches() const { return launches_; }
  /// The results of a rank's pairs [tokens * slots, hidden], before their sum.
  const tensor::Tensor& rows(int rank) const { return rows_[static_cast<size_t>(rank)]; }
  const Layout& layout() const { return work_.layout; }
  int processors() const { return work_.processors; }

 private:
  void check(const Size& size) const;
  void choose(const Manner& manner);
  void open_rank(int rank);
  void take(int rank, const Layer& layer);
  void check_endings();

  Size size_;
  Work work_{};
  std::vector<int> experts_;  // by rank
  std::vector<tensor::Tensor> memory_, rows_;
  tensor::Tensor endings_;
  int64_t launches_ = 0;
  bool broken_ = false;
};

}  // namespace tessera::fused::cuda
