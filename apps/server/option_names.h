#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "tessera/field_names.h"

namespace tessera::server {

/// Returns the option of the command line for a field of the library: "--top-k" for "top_k".
inline std::string option_of(const std::string& field) {
  static const std::map<std::string, std::string> renamed{
      {"calibration", "smooth"}, {"classes", "class"}, {"loras", "lora"}, {"noise", "rng"}};
  const auto other = renamed.find(field);
  std::string option = other == renamed.end() ? field : other->second;
  std::ranges::replace(option, '_', '-');
  return "--" + option;
}

/// Returns a message of the library with the options of the command line.
inline std::string in_options(const std::string& message) {
  return spell_fields(message, option_of);
}

}  // namespace tessera::server
