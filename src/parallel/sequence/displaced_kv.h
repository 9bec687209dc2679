#pragma once

#include <map>
#include <vector>

#include "comm/collectives.h"
#include "nn/seams.h"
#include "parallel/partition.h"

namespace tessera::parallel {

/// Attention of ranks that hold different tokens of the same pictures, with the keys and values of
/// other ranks from the step before (DistriFusion, Li et al. 2024). In a fresh step all are of this
/// step.
class DisplacedKv : public nn::Attention {
 public:
  /// `group`: the ranks of the tokens, in their order; it must outlive this.
  DisplacedKv(const nn::Geometry& geometry, comm::Communicator& group, const Share& share);

  nn::Tensor attend(int site, const nn::TokenView& view, const nn::Heads& heads) override;
  void finish() override { sites_.clear(); }

 private:
  /// Keys and values of all tokens of my rows: [rows * tokens, 2 * width], keys first.
  struct Site {
    nn::Tensor slots;
    comm::Exchange arriving;
    bool pending = false;
  };
  void commit(Site& site);
  void write(Site& site, int rank, const nn::Tensor& part) const;

  const nn::Geometry& geometry_;
  comm::Communicator& group_;
  Share share_;
  std::map<int, Site> sites_;
};

}  // namespace tessera::parallel
