#pragma once

#include <string>
#include <vector>

namespace tessera::load {

/// A tensor's name and a remark after the name ("" for none).
struct NamedItem {
  std::string name, note;
};

/// Joins all items with ", " for a line of a message. Names that differ only in numbers are merged,
/// as 'blocks.{0-11}.attn.qkv.weight'. If the names have no order (a damaged file), the first 200
/// entries are shown, with the number of the rest.
std::string listed_names(const std::vector<NamedItem>& items);

}  // namespace tessera::load
