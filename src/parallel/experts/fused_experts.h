#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "fused/actors.h"
#include "nn/moe/backend.h"

namespace tessera::parallel {

/// Expert parallelism without a bulk exchange: each layer is a single operator over its ranks
/// (fused/operator), with rows in a heap shared by all ranks. Results equal one rank bit by
/// bit.
class FusedExperts final : public nn::ExpertBackend {
 public:
  /// The agreement of the ranks: the rank of expert e, the most tokens of a rank in a call, and the
  /// most experts of a token.
  struct Size {
    std::vector<int> owner;
    int64_t tokens = 0;
    int slots = 1;
  };
  /// `group`: ranks that share the experts; must outlive this object.
  FusedExperts(comm::Communicator& group, Size size) : group_(group), size_(std::move(size)) {}

  /// Throws Error(plan) for tokens on a GPU.
  nn::Tensor run(const nn::MoeCall& call, const nn::Tensor& tokens, const nn::Gate& gate,
                 const nn::ExpertWeights& weights, nn::MoeLog& log) override;

 private:
  /// Rows, and their tiles.
  struct Load {
    int64_t rows = 0, tiles = 0;
  };
  void open(const nn::Tensor& tokens);
  Load load(fused::TaskKind kind, int peer) const;
  /// All ranks' rows for the own experts; sent rows go into the ledger.
  int64_t note_transfers(int site) const;
  /// The same for a dry run, with row counts from messages.
  int64_t dry_run_transfers(int site) const;
  /// Rows for the own experts and own results, as many as others may send before an answer.
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
