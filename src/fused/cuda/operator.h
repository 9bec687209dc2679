#pragma once

#include <span>
#include <vector>

#include "fused/cuda/work.h"
#include "fused/device_layers.h"
#include "tensor/tensor.h"

namespace tessera::fused::cuda {

/// An MoE layer of several ranks on one GPU as a single launch: all ranks' blocks are resident,
/// each rank has a scheduler and processors, and rows travel through symmetric buffers in the GPU's
/// memory (FlashDMoE, Aimuyo et al. 2025, section 5). The order of work is the coordinator's, as on
/// CPUs. Rows equal the separate launches of kernels::cuda::experts and combine bit by bit, for the
/// same kind of tiles.
class DeviceOperator final : public DeviceLayers {
 public:
  using Size = DeviceSize;
  using Layer = DeviceLayer;
  /// Settings; results do not depend on them. 0: chosen.
  struct Manner {
    int processors = 0;                   ///< blocks of a rank beside its scheduler
    int parts = 0;                        ///< tasks of a tile's products
    int64_t window = 0;                   ///< tiles under way between two ranks
    int64_t block = 64;                   ///< tokens of a combine task
    int64_t patience = int64_t{1} << 21;  ///< turns of a wait without news
  };
  using Peers = DevicePeers;
  /// Throws Error(usage) for sizes that the kernel does not have, and Error(plan) if the blocks are
  /// not resident at once.
  DeviceOperator(Size size, Manner manner, Peers peers = {});

  /// Throws Error(rank) for all layers after one that failed, too. `layers`: of the ranks here.
  void run(std::span<const Layer> layers) override;
  /// The two halves of run(): queues the launch, and waits for its end.
  void start(std::span<const Layer> layers);
  void finish();

  int64_t launches() const { return launches_; }
  static Layout layout_of(const Size& size, const Manner& manner);
  int processors() const { return work_.processors; }

 private:
  static void check(const Size& size);
  void choose(const Manner& manner);
  bool is_here(int rank) const {
    return rank >= work_.first_rank && rank < work_.first_rank + work_.rank_count;
  }
  std::span<ExpertData> own_bank();
  void open_rank(int rank);
  void* own_rows(int rank);
  void take(int rank, const Layer& layer);
  void place_maps();
  void check_endings();

  Size size_;
  Peers peers_;
  Work work_{};
  std::vector<int> experts_;  // by rank
  std::vector<tensor::Tensor> memory_;
  std::vector<tensor::Tensor> rows_;  // by rank, if a layer brought none
  tensor::Tensor endings_;
  int map_rows_ = 0;
  tensor::Tensor maps_;  // [experts] ExpertMaps, of mapped_
  std::vector<ExpertData> mapped_;
  int64_t launches_ = 0;
  bool broken_ = false;
};

}  // namespace tessera::fused::cuda
