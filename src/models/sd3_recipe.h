#pragma once

#include <memory>
#include <string>

#include "models/registry.h"
#include "models/sd3.h"

namespace tessera::models {

/// Reads the config.json of a Stable Diffusion 3 transformer; what is missing has the value of the
/// diffusers class. Throws Error(model) naming `where`, the key, its value and what fits.
Sd3Config parse_sd3_config(const base::Json& config, const std::string& where);

/// The family's entry in the registry.
std::unique_ptr<Recipe> sd3_recipe(const base::Json& config, const std::string& where);

}  // namespace tessera::models
