#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jinja {

/// Methods of Python's str over valid UTF-8, for chat templates.

/// Python's white space.
bool is_blank(char32_t c);
/// Strips `characters` at both ends, or at a single end; an empty set: blanks.
std::string_view trimmed(std::string_view text, bool left, bool right,
                         std::string_view characters = {});
/// Number of characters.
int64_t character_count(std::string_view text);
/// Byte offset of character `index`; `text.size()` for the number of characters.
size_t byte_of(std::string_view text, int64_t index);
/// Characters at `begin`, `begin + step`, ... before `end`, like a Python slice. Indices must be
/// inside the text.
std::string every(std::string_view text, int64_t begin, int64_t end, int64_t step);
/// Splits at separators, or at runs of blanks for an empty separator: at most `most` cuts, from the
/// left or from the right; negative: all.
std::vector<std::string> split(std::string_view text, std::string_view by, int64_t most,
                               bool from_right);
/// Splits into lines; line ends are kept with `keep_ends`.
std::vector<std::string> lines_of(std::string_view text, bool keep_ends);
/// Replaces `from` by `to` at most `most` times; negative: all. Throws Error(usage) if the result
/// is too long.
std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     int64_t most);
/// Capitalises every word, or only the first word.
std::string titled(std::string_view text);
std::string capitalized(std::string_view text);
/// Implements str.isalpha and similar: all characters match, and there is at least one.
bool all_of_kind(std::string_view text, const std::string& method);

}  // namespace tessera::jinja
