#pragma once

#include <memory>
#include <vector>

#include "sample/block_walk.h"

namespace tessera::sample {

/// The walk of a sequence with an answer of denoised canvases. The prompt is encoded once. Passes
/// over a canvas replace its tokens until the canvas is finished; a finished canvas is encoded as
/// text before the next canvas begins. Draws are numbered by seed, canvas, pass and position.
std::unique_ptr<BlockWalk> canvas_walk(const std::vector<int32_t>& prompt, int64_t max_tokens,
                                       const DecodingPolicy& policy, const SpecialIds& special,
                                       int64_t cached_tokens);

}  // namespace tessera::sample
