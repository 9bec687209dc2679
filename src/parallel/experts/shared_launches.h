#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "fused/device_layers.h"
#include "nn/moe/expert_weights.h"
#include "parallel/experts/fused_lanes.h"

namespace tessera::parallel {

/// MoE layers of ranks that are threads of a process and share its GPU: the parts of all ranks meet
/// at the first rank, which computes them in one launch (fused/device_layers). A rank that does not
/// come ends the wait of the others, as a message that does not.
class SharedLaunches {
 public:
  /// A rank's part of a layer, on the GPU.
  struct Part {
    tensor::Tensor tokens;   ///< [tokens, hidden]
    tensor::Tensor ids;      ///< i32 [tokens, k], -1: none
    tensor::Tensor weights;  ///< f32 [tokens, k]; undefined: no sums
    tensor::Tensor shared;   ///< the shared expert's rows; undefined: none
    tensor::Tensor rows;     ///< [tokens * k, hidden], for results of experts; undefined: not kept
    tensor::Tensor result;   ///< [tokens, hidden], for sums; undefined: no sums
    nn::ExpertWeights experts;
  };

  /// `group`: ranks that share the experts; must outlive this object.
  SharedLaunches(comm::Communicator& group, FusedSize size)
      : group_(group), size_(std::move(size)) {}

  /// Returns when the layer of all ranks is computed; called on all ranks in the same order. Throws
  /// Error(plan) if ranks are processes, Error(rank) for a rank that does not come within the
  /// deadline of the group.
  void run(int site, Part part);
  /// Numbers of a layer: own assignments by computing rank, and bytes of rows and results for this
  /// rank.
  struct Count {
    std::vector<int64_t> assignments;
    int64_t coming = 0;
  };
  /// Counts products of own experts, and rows in the ledger as if ranks had sent them; called after
  /// run() on all ranks. `ids`: the part's, on the host. `like`: the tokens.
  Count count(int site, const tensor::Tensor& ids, const nn::ExpertWeights& weights,
              const tensor::Tensor& like) const;
  /// The bound of Count::coming for any routing.
  int64_t coming_bound(const tensor::Tensor& like) const;

 private:
  // The parts of all ranks. A rank writes its own before its message to the first rank, which reads
  // all before its answer.
  struct Board {
    std::vector<Part> parts;
  };
  struct Opened {
    fused::DeviceSize size;
    std::unique_ptr<fused::DeviceLayers> layers;
  };
  void meet();
  void launch(int site);
  fused::DeviceSize form_of(int site) const;
  fused::DeviceLayers& layers_for(const fused::DeviceSize& size);

  comm::Communicator& group_;
  const FusedSize size_;
  tensor::Tensor held_;  // the board's memory
  Board* board_ = nullptr;
  std::vector<Opened> opened_;  // the first rank's, by form
};

}  // namespace tessera::parallel
