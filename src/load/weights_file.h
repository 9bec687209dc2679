#pragma once

#include "load/diffusers_folder.h"
#include "load/tensor_set.h"
#include "tessera/weight_files.h"

namespace tessera::load {

/// The weights of a component, of its file (open_weights_file) or folder; experts by names of
/// their own (load/fused_experts.h), float8 as floats (load/file_scales.h). Throws Error(model),
/// also for weights that its config.json calls quantised.
TensorSet open_weights(const Component& part);
/// The tensors of a component's file, by the names of the model: what stands under its prefix, by
/// the table of its class (load/name_map.h), float8 and int8 as floats (load/file_scales.h).
/// Throws Error(model) for a file of another family, naming both.
TensorSet open_weights_file(const Component& part);

/// Gives each file to the part of the folder that it is for: Component::file. Text encoders are
/// told by their tensors, then by their width. A transformer that the folder lacks is described by
/// the shapes in its file, where these say all (load/described_by_shapes.h). Throws Error(usage)
/// for a file that could be for several parts or none, Error(model) for one that cannot be read.
void take_files(const WeightFiles& files, ModelFolder& folder);

}  // namespace tessera::load
