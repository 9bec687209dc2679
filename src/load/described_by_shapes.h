#pragma once

#include <string>

#include "base/json.h"
#include "load/tensor_set.h"

namespace tessera::load {

/// The config.json of a transformer of a class, as the shapes of its weights and the published
/// models of its family say: FLUX.1, FLUX.2, Stable Diffusion 3 and 3.5, Z-Image. Throws
/// Error(model) naming `file` for other classes, and where the shapes are of no published model, so
/// that what they do not tell is not known.
base::Json described_by_shapes(const std::string& type, const TensorSet& tensors,
                               const std::string& file);

}  // namespace tessera::load
