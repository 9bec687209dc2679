#pragma once

#include <cstddef>
#include <string_view>

namespace tessera::base {

/// The first place of `part` in `text` from `from` on; npos: not found. Takes linear time;
/// std::string_view::find may take the product of both lengths.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
/// The last place of `part` in `text`; npos: not found.
size_t find_last_text(std::string_view text, std::string_view part);

}  // namespace tessera::base
