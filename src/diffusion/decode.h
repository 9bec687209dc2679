#pragma once

#include <vector>

#include "comm/communicator.h"
#include "diffusion/job.h"
#include "nn/spatial.h"
#include "tessera/report.h"

namespace tessera::diffusion {

/// Images, or the frames of videos.
struct Decoded {
  std::vector<Image> images;
  /// The values in [0, 1], if requested: [images, 3, H, W] or [videos, frames, 3, H, W].
  tensor::Tensor numbers;
  std::vector<tensor::Tensor> pixels{};  ///< on meta: tensors whose bytes count as the images
  Report shared{};                       ///< per_rank and traffic, if ranks shared the decoding
};

/// Whether ranks of this process decode the images of the plan.
bool decodes_here(const runtime::ModelState& state);

/// The decoder with the forms derived from its filters. All ranks of a process share both; `memory`
/// counts their bytes.
struct SharedDecoder {
  std::unique_ptr<models::VaeDecoder> decoder;
  int64_t weights = 0;
};
SharedDecoder load_decoder(const runtime::ModelState& state, const Job& job,
                           const std::shared_ptr<tensor::MemoryTracker>& memory);

/// Decodes latents in token layout to images, one at a time, whole or in tiles.
Decoded decode(const runtime::ModelState& state, const RunControl& control, const Job& job,
               const std::optional<models::Tiling>& tiles, const tensor::Tensor& tokens,
               bool numbers = false);
/// Decodes as one of the ranks that share every image; null ranks: a single rank, which may use
/// tiles. The first rank holds `tokens` and the result. An error names the rank by its number in
/// the world; an error on one rank ends the waits of all.
Decoded decode_share(const runtime::ModelState& state, const RunControl& control, const Job& job,
                     const std::optional<models::Tiling>& tiles, const tensor::Tensor& tokens,
                     const models::VaeDecoder& decoder, nn::Spatial& spatial,
                     comm::Communicator* ranks, int in_world, bool numbers);

/// Prepares the forms that kernels derive from filters at first use, for latents with `channels`.
/// The memory then belongs to the process, not to the first rank that needs them.
void derive_filters(const runtime::ModelState& state, const models::VaeDecoder& decoder,
                    int64_t channels);

/// Decodes whole images on the ranks of Plan::vae. If ranks are processes, all ranks of the plan
/// call this function; the first rank holds `tokens` and the result. When rank 0 is asked to stop,
/// all ranks stop together.
Decoded decode_in_bands(const runtime::ModelState& state, const RunControl& control, const Job& job,
                        const tensor::Tensor& tokens, bool numbers = false);

}  // namespace tessera::diffusion
