#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/text_allowance.h"

namespace tessera::tokenizer {

/// Maximum bytes of text for all functions here: rules of a file could expand a short text again
/// and again.
inline constexpr size_t kLongestText = size_t{64} << 20;
/// Throws Error(usage) above kLongestText.
void check_length(size_t bytes);
bool is_ascii(std::string_view text);
/// Returns valid UTF-8: invalid bytes become U+FFFD.
std::string repaired(std::string_view text);
/// Length of the code point that starts with byte `first` of valid UTF-8.
size_t length_of(char first);
/// Reads the code point at byte `at` of valid UTF-8 and moves `at` after the code point.
char32_t next_code_point(std::string_view text, size_t& at);
/// Appends a code point as UTF-8.
void append(std::string& to, char32_t c);

/// Lower-cases every code point separately (no special final sigma).
std::string lowered(std::string_view text);

/// Converts the case by the Unicode standard: a letter may become several.
std::string in_lower_case(std::string_view text);
std::string in_upper_case(std::string_view text);
std::string in_title_case(std::string_view letter);

/// Strips white space at both ends, or at a single end.
std::string stripped(const std::string& text, bool left = true, bool right = true);

/// Characters of Python's str.isspace: White_Space and the separators from U+001C on.
bool is_python_space(char32_t c);
/// Property White_Space.
bool is_space(char32_t c);
/// General category Mn.
bool is_nonspacing_mark(char32_t c);
/// General categories P*.
bool is_punctuation(char32_t c);
/// General categories Cc, Cf, Cs and Co.
bool is_invisible(char32_t c);
/// General categories L*, N* and Nd, and visible characters: none of C* and Z*.
bool is_letter(char32_t c);
bool is_number(char32_t c);
bool is_digit(char32_t c);
bool is_printable(char32_t c);
/// Class \w of regular expressions.
bool is_word(char32_t c);

/// Splits a text at the boundaries of extended grapheme clusters (UAX 29).
std::vector<std::string_view> graphemes(std::string_view text);

/// A regular expression over Unicode text.
class Regex {
 public:
  /// Throws Error(model) naming `where` if the pattern is invalid, or longer than 10,000 bytes.
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  /// Byte ranges [begin, end) of all nonempty matches, in order. Throws Error(model) if a pattern
  /// exceeds the time allowed for the whole text.
  std::vector<std::pair<size_t, size_t>> matches(std::string_view text,
                                                 TextAllowance& allowance) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::tokenizer
