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
  /// If they were asked for: the numbers in [0, 1], [images, 3, H, W] or [videos, frames, 3, H,
  /// W].
  tensor::Tensor numbers;
  std::vector<tensor::Tensor> pixels{};  ///< on meta: the bytes of the images, which so count
  Report shared{};                       ///< of ranks that shared them: per_rank and traffic
};

/// Whether ranks of this process decode what the plan makes.
bool decodes_here(const runtime::ModelState& state);

/// The decoder, with what it derives from its filters: all that ranks of a process share, and what
/// it takes of it, which `memory` counts.
struct SharedDecoder {
  std::unique_ptr<models::VaeDecoder> decoder;
  int64_t weights = 0;
};
SharedDecoder load_decoder(const runtime::ModelState& state, const Job& job,
                           const std::shared_ptr<tensor::MemoryTracker>& memory);

/// Latents in token layout to images, one at a time, whole or in tiles.
Decoded decode(const runtime::ModelState& state, const RunControl& control, const Job& job,
               const std::optional<models::Tiling>& tiles, const tensor::Tensor& tokens,
               bool numbers = false);
/// The same by one of the ranks that share each of them (null: one alone, which may do so in
/// tiles); the first one has `tokens`, and what is made of them. An error names the rank by its
/// number in the world; one that a rank has alone ends the waits of all.
Decoded decode_share(const runtime::ModelState& state, const RunControl& control, const Job& job,
                     const std::optional<models::Tiling>& tiles, const tensor::Tensor& tokens,
                     const models::VaeDecoder& decoder, nn::Spatial& spatial,
                     comm::Communicator* ranks, int in_world, bool numbers);

/// Makes what kernels derive from filters at their first use, for latents of so many channels: so
/// it is the process's, not that of the rank which is there first.
void derive_filters(const runtime::ModelState& state, const models::VaeDecoder& decoder,
                    int64_t channels);

/// The same, whole, on the ranks of Plan::vae; of processes all of the plan call it, and the first
/// one has `tokens` and what is made of them. Ranks stop together as rank 0 is asked to.
Decoded decode_in_bands(const runtime::ModelState& state, const RunControl& control, const Job& job,
                        const tensor::Tensor& tokens, bool numbers = false);

}  // namespace tessera::diffusion
