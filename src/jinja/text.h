#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jinja {

/// Python's str, over valid UTF-8: what chat templates do with text.

/// What Python calls white space.
bool is_blank(char32_t c);
/// The text without characters of `set` at its ends, or at one of them; an empty set: blanks.
std::string_view trimmed(std::string_view text, bool left, bool right, std::string_view set = {});
/// How many characters there are.
int64_t character_count(std::string_view text);
/// The byte at which the character `index` begins; `text.size()` for the number of characters.
size_t byte_of(std::string_view text, int64_t index);
/// The characters at `begin`, `begin + step`, ... before `end`, as a slice of Python takes them.
/// The indices lie in the text.
std::string every(std::string_view text, int64_t begin, int64_t end, int64_t step);
/// Pieces between the separators, or between runs of blanks for an empty separator: at most
/// `most` cuts, from the left or from the right; below 0: all.
std::vector<std::string> split(std::string_view text, std::string_view by, int64_t most,
                               bool from_right);
/// Lines without their ends.
std::vector<std::string> lines_of(std::string_view text, bool keep_ends);
/// The text with `from` replaced by `to`, at most `most` times; below 0: all. Throws Error(usage)
/// for what becomes too long.
std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     int64_t most);
/// Every word with a capital first letter, or only the first word.
std::string titled(std::string_view text);
std::string capitalized(std::string_view text);
/// str.isalpha and the like: every character fits, and there is one.
bool all_of_kind(std::string_view text, const std::string& method);

}  // namespace tessera::jinja
