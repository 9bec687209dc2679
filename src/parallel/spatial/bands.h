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

/// Why the ranks of Plan::vae cannot share an image whose latent has so many lines (0: none is
/// decoded or encoded), one sentence each; empty: they can, or need not.
std::vector<std::string> band_problems(const Plan& plan, int64_t lines);

/// Images whose lines ranks share: each has a run of them, a band, as high as it may be, at every
/// size that a network makes of an image (patch-parallel VAE; DistriVAE in xDiT, Fang et al. 2024).
/// Lines beside a band travel before each filter that reads them; what a pixel gets of a filter and
/// of attention is what one rank gives it, and moments are those of whole images, put together in
/// the order of the ranks.
class Bands final : public nn::Spatial {
 public:
  /// `ranks` outlives this, and all of them make the same calls. Before a filter all throw
  /// Error(cancelled) when the first one's `stop` asks, and one alone, as a failure, when its own
  /// does. `chunk`: of its own lines, as nn::LocalSpatial has it.
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
  /// Of images of one height, by rank.
  using Cut = std::vector<nn::Range>;

  nn::Range mine(const Cut& cut) const { return cut.at(static_cast<size_t>(ranks_.rank())); }

  comm::Communicator& ranks_;
  std::stop_token stop_;
  nn::LocalSpatial local_;
  std::map<int64_t, Cut> cuts_;  // by the height of the image
};

}  // namespace tessera::parallel
