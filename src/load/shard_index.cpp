#include "load/shard_index.h"

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"

namespace tessera::load {
namespace {

// An index may list plain names only, nothing outside the folder.
void check_shard_name(const std::string& index, const std::string& name) {
  const bool plain = !name.empty() && name != "." && name != ".." &&
                     name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
  require(
      plain, ErrorCode::model,
      "{}: the shard {} is no plain file name; expected a file beside the index: do not use this "
      "index, download it again from its maker",
      index, base::printable(name));
}

}  // namespace

ShardIndex parse_shard_index(const base::Json& json, const std::string& index) {
  const bool object =
      json.is_object() && json.contains("weight_map") && json["weight_map"].is_object();
  require(object, ErrorCode::model,
          "{}: there is no object 'weight_map' from tensor to shard; expected a safetensors index",
          index);
  ShardIndex shards;
  for (const auto& [tensor, shard] : json["weight_map"].items()) {
    base::check_stop();
    require(shard.is_string(), ErrorCode::model,
            "{}: weight_map gives {} no file name; expected a string", index,
            base::printable(tensor));
    const auto name = shard.get<std::string>();
    check_shard_name(index, name);
    shards[name].insert(tensor);
  }
  require(!shards.empty(), ErrorCode::model, "{}: weight_map is empty; expected tensors", index);
  return shards;
}

}  // namespace tessera::load
