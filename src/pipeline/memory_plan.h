#pragma once

#include <optional>
#include <string>

#include "pipeline/estimate.h"
#include "pipeline/plan_job.h"
#include "pipeline/rehearse.h"

namespace tessera::pipeline {

/// What a part of a run takes, found on meta: bytes, and the ops that it runs.
struct Need {
  int64_t weights = 0, activations = 0, peak = 0;
  int64_t stored = 0;  ///< bytes of all its weights, in memory together or not
  Work work;
};
/// The decoder of a VAE on one image or video of a latent's layout.
Need decode_need(const models::VaeSpec& vae, nn::DType dtype, const nn::TokenLayout& layout,
                 const std::optional<models::Tiling>& tiles);

/// The tiles of the VAE of a model: of `pixels` a side, or 0: as its configuration says. Throws
/// Error(usage) for sizes that no tile has.
models::Tiling vae_tiles(const ModelState& state, int64_t pixels);

/// "16.2 GB", "3.4 MB".
std::string amount(double bytes);

/// What a run may take: bytes, and how messages call it.
struct Room {
  int64_t bytes;
  std::string allows;
};
/// Of this process: RunOptions::memory_budget, else nearly all that the machine or the GPU has,
/// shared with the ranks beside it; less what the run holds already.
Room room_of(const ModelState& state, int64_t held = 0);
/// None if a latent can be decoded whole, else the largest tiles that fit: of the published size,
/// or halves of 1024 pixels. Throws Error(memory) when none do.
std::optional<models::Tiling> fitting_tiles(const ModelState& state, const nn::TokenLayout& layout,
                                            const Room& room);

/// What the ranks of a job need, and why they do not fit; "": they do.
struct Fit {
  Rehearsal need;
  std::string problem;
};
/// Chooses how many blocks of the transformer stay in memory (job.resident_blocks; on one rank, and
/// said in job.notes). Reads no weight.
Fit fit_transformer(const ModelState& state, Job& job);

/// Makes a run fit into memory, that of the machine or RunOptions::memory_budget: chooses the tiles
/// in which latents are decoded, and how many blocks of the transformer stay in memory; says so in
/// job.notes. Parts are in memory one after the other. Throws Error(memory) when nothing helps,
/// Error(usage) for tiles that cannot be.
void plan_memory(ModelState& state, const GenerateRequest& request, Job& job);

}  // namespace tessera::pipeline
