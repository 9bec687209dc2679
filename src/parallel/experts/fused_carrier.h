#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/experts/carrier.h"
#include "parallel/experts/fused_lanes.h"
#include "parallel/experts/shared_launches.h"

namespace tessera::parallel {

/// Carries rows by fused operators, for results read in a later step: a layer stays under way in a
/// lane while the next layer uses the other lane. Flags carry the epoch (the number of the layer in
/// the lane) from which on a result may be read. Rows leave in dispatch(); experts are computed at
/// the latest in compute(), and results fetched at the latest in bring(), or before the lane's
/// next layer. No rank leaves a call while other ranks in the call wait for work of this rank.
class FusedCarrier final : public ExpertCarrier {
 public:
  static constexpr int kLanes = 2;

  /// `group`: ranks that share the experts; must outlive this object. `window`: bytes of a layer
  /// under way between two ranks at once; 0: a usual layer's, as nobody works on a lane while
  /// attention computes.
  FusedCarrier(comm::Communicator& group, FusedSize size, int64_t window = 0)
      : group_(group), size_(std::move(size)), window_(window) {}

  int ranks() const override { return group_.size(); }
  int owner(int32_t expert) const override { return size_.owner.at(static_cast<size_t>(expert)); }
  /// Ranks with tokens on a GPU share the GPU: a layer is a single launch for all ranks, with
  /// results at once.
  ExpertFlight dispatch(int site, const tensor::Tensor& tokens, const tensor::Tensor& ids,
                        const std::vector<int32_t>& assignments,
                        nn::ExpertWeights weights) override;
  void compute(ExpertFlight& flight, bool waits) override;
  tensor::Tensor bring(ExpertFlight& flight, const tensor::Tensor& ids,
                       const tensor::Tensor& like) override;
  void note(nn::MoeLog& log) const override;
  void finish() override;

 private:
  // A layer in a lane, until its results are here.
  struct Layer {
    bool under_way = false, served = false;
    uint64_t turn = 0;
    int site = 0;
    nn::ExpertWeights weights;
    tensor::Tensor rows;
    comm::Exchange dispatch, combine;  // in a dry run
  };
  int lane_of(uint64_t turn) const { return static_cast<int>(turn % kLanes); }
  Layer& layer(int lane) { return layers_[static_cast<size_t>(lane)]; }
  ExpertFlight launched(int site, const tensor::Tensor& tokens, const tensor::Tensor& ids,
                        const std::vector<int32_t>& assignments, const nn::ExpertWeights& weights);
  void serve(int lane);
  void settle(int lane);

  comm::Communicator& group_;
  const FusedSize size_;
  const int64_t window_;
  std::unique_ptr<FusedLanes> lanes_;
  std::unique_ptr<SharedLaunches> launches_;  // on a GPU
  std::array<Layer, kLanes> layers_;
  uint64_t turns_ = 0;
  int64_t coming_before_ = 0, most_coming_ = 0, coming_bound_ = 0;
};

}  // namespace tessera::parallel
