#include "tokenizer/unicode.h"

#include <unicode/brkiter.h>
#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/regex.h>
#include <unicode/uchar.h>
#include <unicode/utext.h>

#include <algorithm>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"

namespace tessera::tokenizer {
namespace {

constexpr size_t kLongestPattern = 10000;

void check(UErrorCode status, const char* action) {
  require(U_SUCCESS(status), ErrorCode::model, "{} failed in ICU: {}; is its data installed?",
          action, u_errorName(status));
}

// Wraps valid UTF-8 for ICU without a copy.
class Text {
 public:
  explicit Text(std::string_view text) {
    UErrorCode status = U_ZERO_ERROR;
    utext_openUTF8(&text_, text.data(), static_cast<int64_t>(text.size()), &status);
    check(status, "reading text");
  }
  ~Text() { utext_close(&text_); }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  UText* get() { return &text_; }

 private:
  UText text_ = UTEXT_INITIALIZER;
};

icu::UnicodeString wide(std::string_view text) {
  return icu::UnicodeString::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
}

using ChangeCase = void (*)(const char*, uint32_t, icu::StringPiece, icu::ByteSink&, icu::Edits*,
                            UErrorCode&);
// Changes the case of a text; ASCII letters from first to last change by a single bit.
std::string in_case(std::string_view text, ChangeCase change, char first, char last) {
  std::string result;
  if (is_ascii(text)) {
    result = text;
    for (char& c : result)
      if (c >= first && c <= last) c = static_cast<char>(c ^ 0x20);
    return result;
  }
  result.reserve(text.size());
  icu::StringByteSink<std::string> sink(&result);
  UErrorCode status = U_ZERO_ERROR;
  change("", 0, {text.data(), static_cast<int32_t>(text.size())}, sink, nullptr, status);
  check(status, "changing the case of a text");
  return result;
}

uint32_t categories(char32_t c) { return U_MASK(u_charType(static_cast<UChar32>(c))); }

}  // namespace

void check_length(size_t bytes) {
  require(bytes <= kLongestText, ErrorCode::usage, "a text of {} bytes; expected at most {}", bytes,
          kLongestText);
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 128; });
}

std::string repaired(std::string_view text) {
  check_length(text.size());
  if (is_ascii(text)) return std::string(text);
  std::string valid;
  wide(text).toUTF8String(valid);
  return valid;
}

size_t length_of(char first) {
  const auto c = static_cast<unsigned char>(first);
  return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

char32_t next_code_point(std::string_view text, size_t& at) {
  const size_t length = std::min(length_of(text[at]), text.size() - at);
  const auto first = static_cast<unsigned char>(text[at]);
  char32_t c = length == 1 ? first : first & (0xffu >> (length + 1));
  for (size_t i = 1; i < length; ++i)
    c = c << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3fu);
  at += length;
  return c;
}

void append(std::string& to, char32_t c) {
  if (c < 0x80) {
    to += static_cast<char>(c);
    return;
  }
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  to += static_cast<char>((0xff00u >> (more + 1) & 0xffu) | c >> (6 * more));
  for (int i = more - 1; i >= 0; --i) to += static_cast<char>(0x80 | (c >> (6 * i) & 0x3f));
}

std::string lowered(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    base::check_stop();
    const char32_t c = next_code_point(text, at);
    if (c == 0x130)  // the only letter that becomes two
      result += "i\xcc\x87";
    else
      append(result, static_cast<char32_t>(u_tolower(static_cast<UChar32>(c))));
  }
  return result;
}

std::string in_lower_case(std::string_view text) {
  return in_case(text, icu::CaseMap::utf8ToLower, 'A', 'Z');
}
std::string in_upper_case(std::string_view text) {
  return in_case(text, icu::CaseMap::utf8ToUpper, 'a', 'z');
}
std::string in_title_case(std::string_view letter) {
  if (is_ascii(letter)) return in_upper_case(letter);
  std::string result;
  icu::StringByteSink<std::string> sink(&result);
  UErrorCode status = U_ZERO_ERROR;
  icu::CaseMap::utf8ToTitle("", U_TITLECASE_WHOLE_STRING | U_TITLECASE_NO_BREAK_ADJUSTMENT, nullptr,
                            {letter.data(), static_cast<int32_t>(letter.size())}, sink, nullptr,
                            status);
  check(status, "title case");
  return result;
}

std::string stripped(const std::string& text, bool left, bool right) {
  size_t begin = text.size(), end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t from = at;
    if (is_space(next_code_point(text, at))) continue;
    begin = std::min(begin, from);
    end = at;
  }
  if (begin >= end) return left || right ? "" : text;
  if (!left) begin = 0;
  return text.substr(begin, (right ? end : text.size()) - begin);
}

bool is_python_space(char32_t c) { return is_space(c) || (c >= 0x1c && c <= 0x1f); }
bool is_space(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)); }
bool is_nonspacing_mark(char32_t c) { return categories(c) & U_GC_MN_MASK; }
bool is_punctuation(char32_t c) { return categories(c) & U_GC_P_MASK; }
bool is_invisible(char32_t c) {
  return categories(c) & (U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CS_MASK | U_GC_CO_MASK);
}
bool is_letter(char32_t c) { return categories(c) & U_GC_L_MASK; }
bool is_number(char32_t c) { return categories(c) & U_GC_N_MASK; }
bool is_digit(char32_t c) { return categories(c) & U_GC_ND_MASK; }
bool is_printable(char32_t c) { return !(categories(c) & (U_GC_C_MASK | U_GC_Z_MASK)); }
bool is_word(char32_t c) {
  return categories(c) & (U_GC_L_MASK | U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK);
}

std::vector<std::string_view> graphemes(std::string_view text) {
  std::vector<std::string_view> clusters;
  if (is_ascii(text)) {
    for (size_t at = 0; at < text.size(); at += clusters.back().size()) {
      base::check_stop();
      clusters.push_back(text.substr(at, text.substr(at, 2) == "\r\n" ? 2 : 1));
    }
    return clusters;
  }
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<icu::BreakIterator> breaks(
      icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
  check(status, "finding graphemes");
  Text in(text);
  breaks->setText(in.get(), status);
  check(status, "finding graphemes");
  int32_t begin = breaks->first();
  for (int32_t end = breaks->next(); end != icu::BreakIterator::DONE; end = breaks->next()) {
    base::check_stop();
    clusters.push_back(text.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    begin = end;
  }
  return clusters;
}

struct Regex::State {
  std::unique_ptr<icu::RegexPattern> pattern;
  std::string where;
};

Regex::Regex(const std::string& pattern, const std::string& where)
    : state_(std::make_unique<State>()) {
  UErrorCode status = U_ZERO_ERROR;
  UParseError at;
  const bool fits = pattern.size() <= kLongestPattern;
  if (fits) state_->pattern.reset(icu::RegexPattern::compile(wide(pattern), at, status));
  require(fits && U_SUCCESS(status), ErrorCode::model, "{}: {} is no regular expression", where,
          base::printable(pattern));
  state_->where = where;
}
Regex::~Regex() = default;

std::vector<std::pair<size_t, size_t>> Regex::matches(std::string_view text,
                                                      TextAllowance& allowance) const {
  UErrorCode status = U_ZERO_ERROR;
  std::vector<std::pair<size_t, size_t>> ranges;
  std::shared_ptr<void>& matcher_slot = allowance.object_of(state_.get());
  if (!matcher_slot)
    matcher_slot = std::shared_ptr<icu::RegexMatcher>(state_->pattern->matcher(status));
  check(status, "a regular expression");
  auto* const matcher = static_cast<icu::RegexMatcher*>(matcher_slot.get());
  Text in(text);
  matcher->reset(in.get());
  const TextAllowance::Timed timed(allowance);
  // Patterns such as \s+(?!\S) keep a backtracking position for each blank of a run.
  constexpr size_t kStack = 8'000'000, kMostStack = 512'000'000, kAByte = 64;
  if (text.size() > kStack / kAByte)
    matcher->setStackLimit(static_cast<int32_t>(std::min(kAByte * text.size(), kMostStack)),
                           status);
  matcher->setMatchCallback(TextAllowance::Timed::match_goes_on, &timed, status);
  while (matcher->find(status) && U_SUCCESS(status)) {
    base::check_stop();
    const auto begin = static_cast<size_t>(matcher->start64(status));
    const auto end = static_cast<size_t>(matcher->end64(status));
    if (begin < end) ranges.emplace_back(begin, end);
  }
  base::check_stop();
  require(U_SUCCESS(status) && timed.goes_on(), ErrorCode::model,
          "{}: a regular expression gave up on {} bytes ({}); the file is damaged, or made to take "
          "for ever",
          state_->where, text.size(), u_errorName(status));
  return ranges;
}

}  // namespace tessera::tokenizer
