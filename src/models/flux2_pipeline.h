#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/flux2.h"
#include "models/pipeline_spec.h"

namespace tessera::models {

/// Parses the config.json of a FLUX.2 transformer; missing keys have the defaults of the diffusers
/// class. Throws Error(model) naming `where`, the key, its value and the allowed values.
Flux2Config parse_flux2_config(const base::Json& config, const std::string& where);

/// Logarithm of the timestep shift in FLUX.2's pipelines, for a number of image tokens and steps.
double flux2_shift(int64_t tokens, int steps);

/// Registry entry of the family.
PipelineSpec flux2_pipeline(const Source& source);

/// Published sizes by name.
std::vector<std::pair<std::string, base::Json>> flux2_sizes();

}  // namespace tessera::models
