#pragma once

#include <vector>

#include "diffusion/job.h"

namespace tessera::diffusion {

/// Splits the samples of a request into parts, to be denoised one after the other. The result is a
/// single part, or with Plan::vae_apart the smallest possible parts: a sample for every group of
/// ranks with samples of its own. Larger parts come first.
std::vector<nn::Range> parts_of(const Plan& plan, int samples);

/// A part of a job, with its own conditioning and the same noise as in the whole job.
Job part_of(const Job& job, nn::Range samples);

/// The sequences of a rank in any part, as numbers in the request; empty for ranks with decoding
/// only.
std::vector<int> sequences_of(const Plan& plan, const Job& job, int rank);

}  // namespace tessera::diffusion
