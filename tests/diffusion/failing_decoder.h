#pragma once

#include <memory>
#include <utility>

#include "models/vae/vae.h"

namespace tessera {

/// A VAE decoder that fails on the rank with the last lines of an image, while the other ranks
/// wait.
class FailingDecoder final : public models::VaeDecoder {
 public:
  static constexpr const char* kSaid = "no memory is left for what the test decodes";

  explicit FailingDecoder(std::unique_ptr<models::VaeDecoder> whole) : whole_(std::move(whole)) {}
  tensor::Tensor unscale(const tensor::Tensor& latents) const override {
    return whole_->unscale(latents);
  }
  tensor::Tensor decode(const tensor::Tensor& latents, nn::Spatial& spatial,
                        const models::VaeWatch& watch) const override {
    const int64_t height = latents.size(-2);
    const nn::Range mine = spatial.lines(height);
    if (mine.begin > 0 && mine.end == height) throw Error(ErrorCode::memory, kSaid);
    return whole_->decode(latents, spatial, watch);
  }

 private:
  std::unique_ptr<models::VaeDecoder> whole_;
};

}  // namespace tessera
