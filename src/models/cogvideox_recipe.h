#pragma once

#include <memory>
#include <string>

#include "models/cogvideox.h"
#include "models/registry.h"

namespace tessera::models {

/// Reads the config.json of a CogVideoX transformer; what is missing has the value of the diffusers
/// class. Throws Error(model) naming `where`, the key, its value and what fits.
CogVideoXConfig parse_cogvideox_config(const base::Json& config, const std::string& where);

/// The family's entry in the registry.
std::unique_ptr<Recipe> cogvideox_recipe(const base::Json& config, const std::string& where);

}  // namespace tessera::models
