#pragma once

#include <vector>

#include "diffusion/job.h"

namespace tessera::diffusion {

/// The parts of a request of so many samples that are denoised one after the other: one, or under
/// Plan::vae_apart as small as they can be, each with a sample for every rank that takes others.
/// The larger ones come first.
std::vector<nn::Range> parts_of(const Plan& plan, int samples);

/// A part of a job, with its own conditioning, and noise drawn as for the whole.
Job part_of(const Job& job, nn::Range samples);

/// The sequences that a rank denoises in any of the parts, by their numbers in the request; a rank
/// that only decodes has none.
std::vector<int> sequences_of(const Plan& plan, const Job& job, int rank);

}  // namespace tessera::diffusion
