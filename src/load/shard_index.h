#pragma once

#include <map>
#include <set>
#include <string>

#include "base/json.h"

namespace tessera::load {

/// The file of each shard, by plain name, and the tensors assigned by the index.
using ShardIndex = std::map<std::string, std::set<std::string>>;

/// Reads model.safetensors.index.json; `index` is its name in errors. Throws Error(model) for a
/// malformed index, and for a shard outside the folder of the index.
ShardIndex parse_shard_index(const base::Json& json, const std::string& index);

}  // namespace tessera::load
