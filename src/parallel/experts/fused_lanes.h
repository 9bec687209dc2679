#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "comm/collectives.h"
#include "comm/communicator.h"
#include "fused/actors.h"

namespace tessera::parallel {

/// The agreement of the ranks of a fused operator: the rank of expert e, the most tokens of a rank
/// in a call, and the most experts of a token.
struct FusedSize {
  std::vector<int> owner;
  int64_t tokens = 0;
  int slots = 1;
  bool on_gpu = false;  ///< a dry run of launches on GPUs (SharedLaunches)
};

/// Fused operators beside each other on the same ranks, each with a lane of a common heap, and with
/// common actors. All ranks begin layers in the same lanes, in the same order.
class FusedLanes {
 public:
  /// Rows, and their tiles.
  struct Load {
    int64_t rows = 0, tiles = 0;
  };

  /// `group`: ranks that share the experts; must outlive this object. `tokens` as in calls.
  /// `most`: tokens of a rank in a lane. `window`: bytes under way between two ranks in a lane.
  FusedLanes(comm::Communicator& group, const FusedSize& size, const tensor::Tensor& tokens,
             int lanes, int64_t most, int64_t window);

  /// A window in which all rows of a usual layer leave at once: twice a rank's rows for another
  /// under even routing, and a part tile of each expert.
  static int64_t usual_window(const FusedSize& size, int ranks, const tensor::Tensor& tokens);

  int count() const { return static_cast<int>(operators_.size()); }
  fused::MoeOperator& at(int lane) const { return *operators_[static_cast<size_t>(lane)]; }
  /// Works on all lanes until over().
  void drive(const std::function<bool()>& over) { actors_->drive(over); }

  /// Rows and tiles of a lane's layer: for up those of `peer` for own experts, for dispatch own
  /// ones for the experts of `peer`.
  Load load(int lane, fused::TaskKind kind, int peer) const;
  /// All ranks' rows for the own experts; rows to others go into the ledger.
  int64_t note_transfers(int lane, int site) const;
  /// Starts the same for a dry run, with a message for the tiles to a rank; fetch() waits, and
  /// returns the rows of all ranks. Give back: the results, likewise.
  comm::Exchange start_dry_run(int lane, int site) const;
  int64_t fetch(comm::Exchange& rows, int site, comm::Exchange& results) const;
  void end_dry_run(comm::Exchange& results) const;
  /// Bytes of rows for own experts and of own results in a layer, as many as others may send before
  /// an answer; and their bound for any routing.
  int64_t coming(int lane) const;
  int64_t coming_bound() const;
  /// Own experts with rows in any lane from `first` to before `last`.
  int64_t touched(int first, int last) const;
  /// Counts products of `rows` rows of own experts, with `touched_experts` of them read.
  void note_products(const nn::ExpertWeights& weights, const tensor::Tensor& like, int64_t rows,
                     double touched_experts) const;
  /// The assumption of a dry run.
  double assumed_touched(int64_t rows) const;

 private:
  comm::Communicator& group_;
  std::vector<int> owner_;
  fused::Layout layout_;
  std::unique_ptr<fused::SymmetricHeap> heap_;
  std::vector<std::unique_ptr<fused::SymmetricHeap>> parts_;  // by lane
  std::vector<std::unique_ptr<fused::MoeOperator>> operators_;
  std::unique_ptr<fused::Actors> actors_;
};

}  // namespace tessera::parallel
