#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "fused/device_layers.h"
#include "fused/peer_buffers.h"
#include "nn/moe/expert_weights.h"
#include "parallel/experts/fused_lanes.h"

namespace tessera::parallel {

/// MoE layers of ranks on GPUs, by launches of fused/device_layers. Ranks as threads of a process
/// share its GPU: the parts of all meet at the first rank, for a single launch. Processes of a host
/// have a GPU each: each launches its part, with rows in the buffers of others
/// (fused/peer_buffers). A missing rank ends the wait of the others, like a missing message.
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

  /// Returns when this rank's part of a layer is computed; called on all ranks in the same order.
  /// Throws Error(plan) if the GPUs of ranks are out of reach, Error(rank) for a rank that does not
  /// come within the deadline of the group.
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
  // The parts of ranks on a shared GPU. A rank writes its own before its message; the first rank
  // reads all before its answer.
  struct Board {
    std::vector<Part> parts;
  };
  // The message of a rank about its part.
  struct Form;
  struct Opened {
    fused::DeviceSize size;
    fused::PeerBuffers buffers;  // empty on a shared GPU
    std::unique_ptr<fused::DeviceLayers> layers;
  };
  void meet();
  Form form_of(const Part& part) const;
  fused::DeviceSize agree(int site, const Form& own_form);
  fused::DeviceLayers& layers_for(const fused::DeviceSize& size);
  void launch(const fused::DeviceSize& size, std::span<const Part> parts, int first_rank);

  comm::Communicator& group_;
  const FusedSize size_;
  std::vector<fused::GpuPlace> places_;  // by rank
  tensor::Tensor held_;                  // the board's memory
  Board* board_ = nullptr;               // null: each rank has a GPU
  std::vector<Opened> opened_;           // by form; on a shared GPU the first rank's
};

}  // namespace tessera::parallel
