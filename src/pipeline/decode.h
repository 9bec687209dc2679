#pragma once

#include <vector>

#include "pipeline/plan_job.h"
#include "tessera/report.h"

namespace tessera::pipeline {

/// Latents in token layout to pictures, one at a time, or to the frames of videos. With `keep` also
/// the numbers in [0, 1]: [pictures, 3, H, W], or [videos, frames, 3, H, W]; else undefined.
tensor::Tensor decode(const ModelState& state, const RunControl& control, const Job& job,
                      const tensor::Tensor& tokens, std::vector<Picture>& pictures, bool keep);

}  // namespace tessera::pipeline
