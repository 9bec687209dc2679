#pragma once

#include "models/pipeline_spec.h"

namespace tessera::models {

/// Bin of PixArt's table with the nearest aspect ratio (Chen et al. 2023, section 2.4: about as
/// many pixels as trained, at 33 or 40 aspect ratios). `sample_size` is the transformer's: 32, 64,
/// 128 or 256. Throws Error(model) for other values.
PipelineSpec::Bin pixart_bin(int64_t sample_size, int64_t height, int64_t width);

/// HunyuanDiT's listed size with the nearest ratio, then the nearest area; the request is first cut
/// to multiples of 16.
PipelineSpec::Bin hunyuan_dit_bin(int64_t height, int64_t width);

}  // namespace tessera::models
