#pragma once

#include <optional>
#include <string>

#include "models/llada.h"
#include "nn/cut_weights.h"

namespace tessera::models {

/// The sizes of a part of the model: heads, and the widths of dense layers, experts and the shared
/// one (parts may differ by one column). Throws Error(plan) when the heads do not divide, naming
/// what would, or a width is smaller than the number of parts.
LladaConfig shard_of(const LladaConfig& whole, const nn::Shard& shard);
/// What the part takes of a tensor; nothing: all of it (embeddings, norms, routers, the head).
std::optional<nn::Cut> shard_cut(const LladaConfig& whole, const nn::Shard& shard,
                                 const std::string& name);

}  // namespace tessera::models
