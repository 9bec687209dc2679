#pragma once

#include <vector>

#include "runtime/model_state.h"

namespace tessera::runtime {

/// FLOPs of each block, for a sample of the trained size with the longest text: found on meta.
/// Where the model has no positions for that size, it is halved until there are.
std::vector<double> block_flops(const models::PipelineSpec& spec, nn::DType dtype);

/// Says in the plan of a model which blocks each stage of pipefusion=N has, where the plan does
/// not and there are enough: by their FLOPs and weights (parallel/stages).
void choose_stages(ModelState& state);

}  // namespace tessera::runtime
