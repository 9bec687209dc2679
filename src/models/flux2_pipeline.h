#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/flux2.h"
#include "models/pipeline_spec.h"

namespace tessera::models {

/// Reads the config.json of a FLUX.2 transformer; what is missing has the value of the diffusers
/// class. Throws Error(model) naming `where`, the key, its value and what fits.
Flux2Config parse_flux2_config(const base::Json& config, const std::string& where);

/// The logarithm of the shift that FLUX.2's pipelines give their scheduler, for so many tokens of
/// an image and so many steps.
double flux2_shift(int64_t tokens, int steps);

/// The family's entry in the registry.
PipelineSpec flux2_pipeline(const Source& source);

/// Published sizes by name.
std::vector<std::pair<std::string, base::Json>> flux2_sizes();

}  // namespace tessera::models
