#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "diffusion/job.h"
#include "tessera/report.h"

namespace tessera::admission {

/// Predicted memory and work of a run, found by its execution without data.
struct DryRun {
  std::vector<Inspection::Rank> ranks;
  /// Bytes of this process: its rank, or all its threads; and the weights among
  /// them.
  int64_t process = 0, weights = 0;
  int64_t between = 0;   ///< the most held at a step's callback, with a possible preview
  int64_t decoding = 0;  ///< the part of `process` on separate decoding ranks
  int64_t decoders = 0;  ///< bytes of decoder weights on separate ranks
  int64_t results = 0;   ///< the decoders' results for all samples in `process`, with latents
  int64_t traced = 0;    ///< the part kept by the request for all steps
  diffusion::Work work;  ///< a step, or a pass over all tokens, on all ranks
  double messages = 0;   ///< sent by all ranks in a step of images
};

/// Steps of a job after which ranks only do again what they did before.
int steps_until_they_repeat(const Plan& plan, const diffusion::Job& job);
/// The mean of `steps` steps.
diffusion::Work mean_work(diffusion::Work work, int steps);
/// A rank's memory and work for inspect, from its report over `steps` steps.
Inspection::Rank predicted(const Report::Rank& report, int experts, int64_t tokens, int steps);
/// Sets the need of this process for its ranks: the largest, if each is a process; else all, with
/// the shared weights of the networks from `make` on meta.
void add_process(const RunOptions& options,
                 const std::function<std::shared_ptr<const void>(int rank)>& make,
                 DryRun& prediction);

/// A request's bytes besides its ranks: all conditioning, and its inputs.
int64_t input_bytes(const diffusion::Job& job);

/// A dry run of a job's denoising on a model on meta: network, loop, strategies and messages of
/// all ranks of the plan, until steps repeat. Reads no weight. Throws Error(plan) for an invalid
/// plan.
DryRun dry_run(const runtime::ModelState& state, const RunOptions& options,
               const diffusion::Job& job);
/// With the model's options.
DryRun dry_run(const runtime::ModelState& state, const diffusion::Job& job);

/// Its ranks alone, over so many first steps, for plans whose ranks all denoise.
std::vector<Inspection::Rank> dry_run_ranks(const runtime::ModelState& state,
                                            const diffusion::Job& job, int steps);

/// The decoding of a job's last image or video, whole or in tiles, beside all latents and earlier
/// results.
diffusion::MemoryNeed dry_run_decode(const runtime::ModelState& state, const diffusion::Job& job,
                                     const std::optional<models::Tiling>& tiles);
/// The encoding of an image of a job, whole or in tiles.
diffusion::MemoryNeed dry_run_encode(const runtime::ModelState& state, const diffusion::Job& job,
                                     const diffusion::SourceImage& image,
                                     const std::optional<models::Tiling>& tiles);
/// Decoding on the ranks of Plan::vae: the need of this process, and of each rank in `ranks`.
diffusion::MemoryNeed dry_run_bands(const runtime::ModelState& state, const diffusion::Job& job,
                                    std::vector<Inspection::Rank>& ranks);

}  // namespace tessera::admission
