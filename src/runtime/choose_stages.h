#pragma once

#include <vector>

#include "runtime/model_state.h"

namespace tessera::runtime {

/// FLOPs of each block, for a sample of the trained size with the longest text: found on meta. If
/// the model has too few positions for the size, the size is halved until the positions suffice.
std::vector<double> block_flops(const models::PipelineSpec& spec, nn::DType dtype);

/// Throws Error(plan) for moe=fused on a GPU of a model whose layers do not fit a launch.
void check_launches(const ModelState& state);

/// Sets the blocks of each stage of pipefusion=N in a model's plan, unless the plan sets them or
/// the model has too few blocks: by FLOPs and weights (parallel/stages).
void choose_stages(ModelState& state);

}  // namespace tessera::runtime
