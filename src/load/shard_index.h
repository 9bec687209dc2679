#pragma once

#include <map>
#include <set>
#include <string>

#include "base/json.h"

namespace tessera::load {

/// The file of each shard, by its plain name, and the tensors that an index places there.
using ShardIndex = std::map<std::string, std::set<std::string>>;

/// Reads model.safetensors.index.json; `index` names it in errors. Throws Error(model) for what is
/// no index, and for a shard that lies anywhere but beside it.
ShardIndex parse_shard_index(const base::Json& json, const std::string& index);

}  // namespace tessera::load
