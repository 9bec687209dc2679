#pragma once

#include "models/pipeline_spec.h"

namespace tessera::models {

/// The size of PixArt's table for a model (Chen et al. 2023, section 2.4: about as many pixels as
/// trained, at 33 or 40 aspect ratios) whose ratio is nearest. `sample_size` is the transformer's:
/// 32, 64, 128 or 256. Throws Error(model) for another.
PipelineSpec::Bin pixart_bin(int64_t sample_size, int64_t height, int64_t width);

/// The size of HunyuanDiT's list nearest in ratio, then in area, to a request that is first cut to
/// multiples of 16.
PipelineSpec::Bin hunyuan_dit_bin(int64_t height, int64_t width);

}  // namespace tessera::models
