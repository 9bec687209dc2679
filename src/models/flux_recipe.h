#pragma once

#include <memory>
#include <string>

#include "models/flux.h"
#include "models/registry.h"

namespace tessera::models {

/// Reads the config.json of a FLUX transformer; what is missing has the value of the diffusers
/// class. Throws Error(model) naming `where`, the key, its value and what fits.
FluxConfig parse_flux_config(const base::Json& config, const std::string& where);

/// The family's entry in the registry.
std::unique_ptr<Recipe> flux_recipe(const base::Json& config, const std::string& where);

}  // namespace tessera::models
