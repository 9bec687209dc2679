#pragma once

#include <memory>
#include <vector>

#include "sample/block_walk.h"

namespace tessera::sample {

/// The way of a sequence whose answer is denoised canvas by canvas: the prompt is encoded once;
/// passes over a canvas replace its tokens until it is finished; a finished canvas is encoded as
/// text before the next one begins. Draws are numbered by seed, canvas, pass and position.
std::unique_ptr<BlockWalk> canvas_walk(const std::vector<int32_t>& prompt, int64_t max_tokens,
                                       const DecodingPolicy& policy, const SpecialIds& special,
                                       int64_t kept);

}  // namespace tessera::sample
