#pragma once

#include <map>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "nn/local_spatial.h"
#include "tessera/plan.h"

namespace tessera::parallel {

/// Reasons against sharing an image of `lines` latent lines (0: no decoding or encoding) among the
/// ranks of Plan::vae, one sentence each; empty: valid.
std::vector<std::string> band_problems(const Plan& plan, int64_t lines);

/// Images split by lines over ranks: each has a band of lines at every size inside a
/// network (patch-parallel VAE; DistriVAE in xDiT, Fang et al. 2024). Neighbouring
/// lines travel before each filter. Filters and attention give each pixel the same
/// value as one rank; moments cover whole images and are merged in the order of
/// ranks.
class Bands final : public nn::Spatial {
 public:
  /// `ranks` must outlive this object; all ranks make the same calls. Before a filter all throw
  /// Error(cancelled) at the first rank's `stop`; another rank's own stop is a failure of this
  /// rank. `chunk`: of the own lines, as in nn::LocalSpatial.
  explicit Bands(comm::Communicator& ranks, std::stop_token stop = {}, int64_t chunk = 0)
      : ranks_(ranks), stop_(std::move(stop)), local_(chunk) {}

  nn::Range lines(int64_t height) override;
  tensor::Tensor join(const nn::Plane& x) override;
  nn::Plane convolve(std::span<const ops::ConvWeight> taps, const nn::Plane& x,
                     const ops::Conv2dOptions& options) override;
  nn::Plane narrow(const ops::ConvWeight& weight, nn::Plane x) override;
  tensor::Tensor moments(const nn::Plane& x, bool together = false) override;
  tensor::Tensor attend(const nn::Plane& x, const tensor::Tensor& q, const tensor::Tensor& k,
                        const tensor::Tensor& v) override;

 private:
  /// The bands of images with equal height, by rank.
  using Cut = std::vector<nn::Range>;

  nn::Range own_range(const Cut& cut) const { return cut.at(static_cast<size_t>(ranks_.rank())); }

  comm::Communicator& ranks_;
  std::stop_token stop_;
  nn::LocalSpatial local_;
  std::map<int64_t, Cut> cuts_;  // by image height
};

}  // namespace tessera::parallel
