#pragma once

#include <map>
#include <optional>
#include <string>

#include "models/registry.h"
#include "tensor/scope.h"
#include "tessera/request.h"

namespace tessera::pipeline {

/// Ops and what they do, by name.
using Work = std::map<std::string, tensor::Meter::Entry>;

/// Work and memory of one run, by running the model on meta; parts are in memory one after the
/// other.
struct Estimate {
  double flops_per_step = 0;
  Work work;                                       ///< of a step
  int64_t weights = 0, activations = 0, peak = 0;  ///< bytes
  int64_t parameters = 0;
};
/// Throws Error(memory) for more tokens in a step than any machine could hold.
void check_tokens(const nn::TokenLayout& layout, int64_t batch);
/// Of one rank, with the longest texts. Nothing is read but the sizes in `spec`. Throws as
/// check_tokens.
Estimate estimate(const models::PipelineSpec& spec, nn::DType dtype, const nn::TokenLayout& layout,
                  int samples, bool branches, std::optional<nn::DType> experts = std::nullopt);
/// How a run computes, and in what its routed experts' weights are, if in something else.
nn::DType dtype_of(const RunOptions& options);
std::optional<nn::DType> expert_dtype_of(const RunOptions& options);

/// Pixels of a side -> latent pixels; 0 stays 0 (as trained). Throws Error(usage) naming --`side`
/// and the nearest sizes that fill patches of so many latent pixels.
int64_t latent_pixels(int64_t pixels, int64_t factor, int64_t patch, const char* side);

}  // namespace tessera::pipeline
