#pragma once

#include <string>
#include <string_view>

namespace tessera::caption {

/// What a named character reference of HTML stands for.
struct HtmlEntity {
  std::string text;   ///< UTF-8
  bool bare = false;  ///< it may stand without ';'
};
/// By its name in small letters, without '&' and ';'; null: there is none.
const HtmlEntity* html_entity(std::string_view name);

}  // namespace tessera::caption
