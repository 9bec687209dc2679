#pragma once

#include <string>
#include <vector>

namespace tessera::load {

/// A tensor's name and what is to be said behind it ("" for nothing).
struct NamedItem {
  std::string name, note;
};

/// All items for one line of a message, joined by ", ": those that differ only in numbers of the
/// name are drawn together, as 'blocks.{0-11}.attn.qkv.weight'. From a damaged file with no order
/// in its names the first 200 entries are shown, and the number of the rest.
std::string listed_names(const std::vector<NamedItem>& items);

}  // namespace tessera::load
