#pragma once

#include <cstddef>
#include <string_view>

namespace tessera::base {

/// The first place of `part` in `text` from `from` on; npos: there is none. In linear time, where
/// std::string_view::find takes the product of the two lengths.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
/// The last place of `part` in `text`; npos: there is none.
size_t find_last_text(std::string_view text, std::string_view part);

}  // namespace tessera::base
