#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/text_allowance.h"

namespace tessera::tokenizer {

/// Bytes of text that anything here makes or takes: rules of a file could make a long text of a
/// short one again and again.
inline constexpr size_t kLongestText = size_t{64} << 20;
/// Throws Error(usage) for more than kLongestText.
void check_length(size_t bytes);
bool is_ascii(std::string_view text);
/// The text as valid UTF-8: what is not becomes U+FFFD.
std::string repaired(std::string_view text);
/// Bytes of the code point that starts with byte `first` of valid UTF-8.
size_t length_of(char first);
/// The code point at byte `at` of valid UTF-8; `at` moves behind it.
char32_t next_code_point(std::string_view text, size_t& at);
/// Appends a code point as UTF-8.
void append(std::string& to, char32_t c);

/// Every code point in lower case by itself (a final sigma is no exception).
std::string lowered(std::string_view text);

/// The text in a case as the Unicode standard has it: one letter may become several.
std::string in_lower_case(std::string_view text);
std::string in_upper_case(std::string_view text);
std::string in_title_case(std::string_view letter);

/// The text without white space at its ends, or at one of them.
std::string stripped(const std::string& text, bool left = true, bool right = true);

/// What str.isspace of Python takes for one: White_Space and the separators from U+001C on.
bool is_python_space(char32_t c);
/// White_Space.
bool is_space(char32_t c);
/// General category Mn.
bool is_nonspacing_mark(char32_t c);
/// General categories P*.
bool is_punctuation(char32_t c);
/// General categories Cc, Cf, Cs and Co.
bool is_invisible(char32_t c);
/// General categories L*, N* and Nd, and those that are shown: none of C* and Z*.
bool is_letter(char32_t c);
bool is_number(char32_t c);
bool is_digit(char32_t c);
bool is_printable(char32_t c);
/// What regular expressions call \w.
bool is_word(char32_t c);

/// The text cut at the boundaries of extended grapheme clusters (UAX 29).
std::vector<std::string_view> graphemes(std::string_view text);

/// A regular expression over Unicode text.
class Regex {
 public:
  /// Throws Error(model) naming `where` if the pattern is none, or one of more than 10,000 bytes.
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  /// Bytes [begin, end) of every match that is not empty, in order. Throws Error(model) for a
  /// pattern that takes more time than the whole text, of which this may be a piece, allows.
  std::vector<std::pair<size_t, size_t>> matches(std::string_view text,
                                                 TextAllowance& allowance) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::tokenizer
