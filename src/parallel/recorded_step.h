#pragma once

#include <functional>
#include <memory>

#include "nn/moe/moe_layers.h"
#include "tensor/recording.h"

namespace tessera::parallel {

/// The network's part of the steps of a request: (timesteps f32 [batch], latent) -> prediction,
/// with equal sizes. If allowed, a device records the second call and replays later ones without
/// host work between kernels; the first call fills caches.
class RecordedStep {
 public:
  using Work = std::function<tensor::Tensor(const tensor::Tensor& time, const tensor::Tensor& x)>;
  /// `may`: tensors are on a device, other inputs stay in place, and nothing watches the work.
  /// `experts` counts calls; may be null. Both must outlive this object.
  RecordedStep(Work work, bool may, nn::MoeLayers* experts)
      : work_(std::move(work)), may_(may), experts_(experts) {}

  tensor::Tensor operator()(const tensor::Tensor& time, const tensor::Tensor& latent);

 private:
  bool record(const tensor::Tensor& time, const tensor::Tensor& latent);
  Work work_;
  bool may_;
  nn::MoeLayers* experts_;
  int calls_ = 0;
  tensor::Tensor time_, latent_, out_;  // at the recorded addresses
  std::unique_ptr<tensor::Recording> recording_;
};

}  // namespace tessera::parallel
