#pragma once

#include <string>
#include <vector>

#include "models/dit_moe.h"
#include "models/pipeline_spec.h"

namespace tessera::models {

/// Reads a DiT-MoE's config.json. Throws Error(model) naming `where`, the key, its value and what
/// fits.
DitMoeConfig parse_dit_moe_config(const base::Json& config, const std::string& where);

/// The family's entry in the registry.
PipelineSpec dit_moe_pipeline(const Source& source);

/// The published sizes S, B, L, XL (8 experts) and G (16 experts), patch 2, 256 x 256 pixels.
std::vector<std::pair<std::string, base::Json>> dit_moe_sizes();

}  // namespace tessera::models
