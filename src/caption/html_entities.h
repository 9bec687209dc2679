#pragma once

#include <string>
#include <string_view>

namespace tessera::caption {

/// Value of a named HTML character reference.
struct HtmlEntity {
  std::string text;   ///< UTF-8
  bool bare = false;  ///< the ';' is optional
};
/// Looks up a lower-case name without '&' and ';'; null: unknown.
const HtmlEntity* html_entity(std::string_view name);

}  // namespace tessera::caption
