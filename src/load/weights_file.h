#pragma once

#include "load/diffusers_folder.h"
#include "load/tensor_set.h"
#include "tessera/weight_files.h"

namespace tessera::load {

/// Opens the weights of a component, from its file (open_weights_file) or folder; experts have
/// separate names (load/fused_experts.h), float8 becomes float (load/file_scales.h). Throws
/// Error(model), also for weights declared as quantised in config.json.
TensorSet open_weights(const Component& part);
/// Tensors of a component's file with the names of the model: without the prefix, renamed by the
/// class's table (load/name_map.h), float8 and int8 as floats (load/file_scales.h). Throws
/// Error(model) for a file of another family, naming both.
TensorSet open_weights_file(const Component& part);

/// Assigns each file to the matching part of the folder: Component::file. Text encoders are
/// identified by their tensors, then by width. A missing transformer is described by the shapes in
/// its file, if these are sufficient (load/described_by_shapes.h). Throws Error(usage) for a file
/// that fits several parts or none, Error(model) for an unreadable file.
void take_files(const WeightFiles& files, ModelFolder& folder);

}  // namespace tessera::load
