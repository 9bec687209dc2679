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

/// What a run will hold and do, found by running it.
struct Rehearsal {
  std::vector<Inspection::Rank> ranks;
  /// Bytes that this process needs: its rank, or all ranks that are its threads; and those of them
  /// that are weights.
  int64_t process = 0, weights = 0;
  int64_t between = 0;   ///< held at most where a step is told, which may ask for a preview
  int64_t decoding = 0;  ///< of those that `process` needs, what ranks that decode apart hold
  int64_t decoders = 0;  ///< bytes of the decoder's weights, of ranks that decode apart
  int64_t results = 0;   ///< of `process`, what those have made of all samples, with the latents
  int64_t traced = 0;    ///< of these, tensors of all steps that the request keeps
  diffusion::Work work;  ///< of a step, or of a pass over all tokens, of all ranks
  double messages = 0;   ///< that all ranks send in a step of images
};

/// That of one of so many steps.
diffusion::Work mean_work(diffusion::Work work, int steps);
/// What a rank holds and does, as inspect says it, by what it did in so many steps.
Inspection::Rank foretold(const Report::Rank& did, int experts, int64_t tokens, int steps);
/// Sets what this process needs for its ranks: the largest one, if each is a process of its own;
/// else all, with the weights that they share, of the networks that `make` gives on meta.
void add_process(const RunOptions& options,
                 const std::function<std::shared_ptr<const void>(int rank)>& make,
                 Rehearsal& found);

/// What a request holds beside its ranks: the conditioning of all sequences, and what it was given.
int64_t input_bytes(const diffusion::Job& job);

/// The denoising of a job on a stage: the network, the loop, the strategies and the messages of all
/// ranks of the plan, for as many steps as it takes until they repeat. Reads no weight. Throws
/// Error(plan) for a plan that cannot run this.
Rehearsal rehearse(const runtime::ModelState& state, const RunOptions& options,
                   const diffusion::Job& job);
/// Under the options of the model.
Rehearsal rehearse(const runtime::ModelState& state, const diffusion::Job& job);

/// The decoding of a job's last image or video, whole or in tiles, beside all latents and what was
/// made of the others.
diffusion::Need rehearse_decode(const runtime::ModelState& state, const diffusion::Job& job,
                                const std::optional<models::Tiling>& tiles);
/// The same on the ranks of Plan::vae: what this process needs; and what each of them, in `ranks`.
diffusion::Need rehearse_bands(const runtime::ModelState& state, const diffusion::Job& job,
                               std::vector<Inspection::Rank>& ranks);

}  // namespace tessera::admission
