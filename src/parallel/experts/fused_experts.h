#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "fused/actors.h"
#include "nn/moe/backend.h"

namespace tessera::parallel {

/// Expert parallelism without an exchange that all ranks wait for: each layer is one operator over
/// them (fused/operator), whose rows go through a heap that all of them write. The bits are those
/// of one rank.
class FusedExperts final : public nn::ExpertBackend {
 public:
  /// What the ranks agree on: who has expert e, the most tokens of any of them in a call, and the
  /// most experts of a token.
  struct Size {
    std::vector<int> owner;
    int64_t tokens = 0;
    int slots = 1;
  };
  /// `group`: ranks that share the experts; it outlives this.
  FusedExperts(comm::Communicator& group, Size size) : group_(group), size_(std::move(size)) {}

  /// Throws Error(plan) for tokens on a GPU.
  nn::Tensor run(const nn::MoeCall& call, const nn::Tensor& tokens, const nn::Gate& gate,
                 const nn::ExpertWeights& weights, nn::MoeLog& log) override;

 private:
  /// Rows, and the tiles in which they travel.
  struct Load {
    int64_t rows = 0, tiles = 0;
  };
  void open(const nn::Tensor& tokens);
  Load load(fused::TaskKind kind, int peer) const;
  /// Of all ranks' rows for my experts; what I sent goes into the ledger.
  int64_t note_transfers(int site) const;
  /// The same of a rehearsal, where messages say how many rows come.
  int64_t rehearse_transfers(int site) const;
  /// Rows of others for my experts, and results of mine, that others may send before I answer.
  void note_incast(nn::MoeLog& log) const;
  void note_work(const nn::Tensor& tokens, const nn::ExpertWeights& weights, int64_t rows) const;

  comm::Communicator& group_;
  const Size size_;
  fused::Layout layout_;
  std::unique_ptr<fused::SymmetricHeap> heap_;
  std::unique_ptr<fused::MoeOperator> operator_;
  std::unique_ptr<fused::Actors> actors_;
};

}  // namespace tessera::parallel
