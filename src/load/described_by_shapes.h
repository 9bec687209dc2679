#pragma once

#include <string>

#include "base/json.h"
#include "load/tensor_set.h"

namespace tessera::load {

/// Derives the config.json of a transformer from the shapes of its weights and the published models
/// of its family: FLUX.1, FLUX.2, Stable Diffusion 3 and 3.5, Z-Image. Throws Error(model) naming
/// `file` for other classes, and for shapes of no published model, because shapes alone do not
/// determine a config.
base::Json described_by_shapes(const std::string& type, const TensorSet& tensors,
                               const std::string& file);

}  // namespace tessera::load
