#pragma once

#include <vector>

#include "pipeline/plan_job.h"
#include "tessera/report.h"

namespace tessera::pipeline {

/// Images, or the frames of videos.
struct Decoded {
  std::vector<Image> images;
  /// If they were asked for: the numbers in [0, 1], [images, 3, H, W] or [videos, frames, 3, H,
  /// W].
  tensor::Tensor numbers;
  std::vector<tensor::Tensor> pixels{};  ///< on meta: the bytes of the images, which so count
};

/// Latents in token layout to images, one at a time, whole or in tiles.
Decoded decode(const ModelState& state, const RunControl& control, const Job& job,
               const std::optional<models::Tiling>& tiles, const tensor::Tensor& tokens,
               bool numbers = false);

}  // namespace tessera::pipeline
