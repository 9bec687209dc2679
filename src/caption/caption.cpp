#include "caption/caption.h"

#include <unicode/locid.h>
#include <unicode/regex.h>
#include <unicode/ucnv.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/stop.h"
#include "caption/html_entities.h"
#include "caption/html_text.h"
#include "tokenizer/normal_form.h"
#include "tokenizer/text_allowance.h"
#include "tokenizer/unicode.h"

namespace tessera::caption {
using tokenizer::append;
using tokenizer::Form;
using tokenizer::is_python_space;
using tokenizer::next_code_point;
using tokenizer::normalized;
using tokenizer::repaired;
using tokenizer::TextAllowance;

namespace {

constexpr size_t kLongest = 5000;  // bytes; T5 reads some hundred tokens

using Wide = icu::UnicodeString;

Wide wide(std::string_view text) {
  return Wide::fromUTF8({text.data(), static_cast<int32_t>(text.size())});
}
std::string narrow(const Wide& text) {
  std::string out;
  text.toUTF8String(out);
  return out;
}

// Replaces names in braces by Python's character classes: {w} \w, {s} \s, {d} \d, {b} \b, {end} $.
std::string spelled(std::string pattern) {
  static const std::pair<const char*, const char*> names[] = {
      {"{b}", "(?:(?<={w})(?!{w})|(?<!{w})(?={w}))"},
      {"{w}", "[\\p{L}\\p{N}_]"},
      {"{nw}", "[^\\p{L}\\p{N}_]"},
      {"{s}", "[\\p{White_Space}\\x{1c}-\\x{1f}]"},
      {"{ns}", "[^\\p{White_Space}\\x{1c}-\\x{1f}]"},
      {"{d}", "\\p{Nd}"},
      {"{end}", "(?=\\n?\\z)"}};
  for (const auto& [name, meaning] : names)
    for (size_t at = pattern.find(name); at != std::string::npos; at = pattern.find(name, at))
      pattern.replace(at, std::string_view(name).size(), meaning);
  return pattern;
}

class Rule {
 public:
  Rule(const char* pattern, const char* by) : by_(wide(by)) {
    UErrorCode status = U_ZERO_ERROR;
    UParseError at;
    pattern_.reset(icu::RegexPattern::compile(wide(spelled(pattern)), at, status));
    require(U_SUCCESS(status), ErrorCode::model, "a rule for prompts failed in ICU: {} ({})",
            u_errorName(status), pattern);
  }
  Wide operator()(const Wide& text, TextAllowance& allowance) const {
    const TextAllowance::Timed timed(allowance);
    UErrorCode status = U_ZERO_ERROR;
    const auto matcher = match(text, timed, status);
    const Wide result = matcher->replaceAll(by_, status);
    return checked(result, status);
  }
  int count(const Wide& text, TextAllowance& allowance) const {
    const TextAllowance::Timed timed(allowance);
    UErrorCode status = U_ZERO_ERROR;
    const auto matcher = match(text, timed, status);
    int matches = 0;
    while (matcher->find(status) && U_SUCCESS(status)) ++matches;
    return checked(matches, status);
  }

 private:
  std::unique_ptr<icu::RegexMatcher> match(const Wide& text, const TextAllowance::Timed& timed,
                                           UErrorCode& status) const {
    std::unique_ptr<icu::RegexMatcher> matcher(pattern_->matcher(text, status));
    require(U_SUCCESS(status), ErrorCode::model, "a rule for prompts failed in ICU: {}",
            u_errorName(status));
    matcher->setMatchCallback(TextAllowance::Timed::match_goes_on, &timed, status);
    return matcher;
  }
  template <class T>
  static T checked(const T& result, UErrorCode status) {
    base::check_stop();
    require(U_SUCCESS(status), ErrorCode::usage,
            "cleaning this prompt takes too long ({}): give a shorter one, or `clean_caption` off",
            u_errorName(status));
    return result;
  }
  std::unique_ptr<icu::RegexPattern> pattern_;
  Wide by_;
};

using Rules = std::vector<Rule>;

Wide applied(const Rules& rules, Wide text, TextAllowance& allowance) {
  for (const Rule& rule : rules) text = rule(text, allowance);
  return text;
}

#define TESSERA_ENDINGS "(?:com|co|ru|net|org|edu|gov|it)"
#define TESSERA_FILES "(?:png|jpg|jpeg|bmp|webp|eps|pdf|apk|mp4)"

// Rules for web addresses.
const Rules& before_html() {
  static const Rules rules = [] {
    Rules r;
    r.emplace_back("<person>", "person");
    for (const char* scheme : {"https?:", "www:"})
      r.emplace_back(("{b}(?:" + std::string(scheme) +
                      "(?:/{1,3}|[a-zA-Z0-9%])|[a-zA-Z0-9.\\-]+[.]" TESSERA_ENDINGS
                      "(?:{w}|[/\\-])*{b}/?(?!@))")
                         .c_str(),
                     "");
    return r;
  }();
  return rules;
}

// Rules for names, scripts, signs, numbers and files.
const Rules& after_html() {
  static const Rules rules = [] {
    Rules r;
    r.emplace_back("@(?:{w}|{d})+{b}", "");
    r.emplace_back("[\\u31c0-\\u31ef\\u31f0-\\u4dff\\u4e00-\\u9fff]+", "");
    r.emplace_back(
        "[\\-\\u058a\\u05be\\u1400\\u1806\\u2010-\\u2015\\u2e17\\u2e1a\\u2e3a\\u2e3b\\u2e40\\u301c"
        "\\u3030\\u30a0\\ufe31\\ufe32\\ufe58\\ufe63\\uff0d]+",
        "-");
    r.emplace_back("[`\\u00b4\\u00ab\\u00bb\\u201c\\u201d\\u00a8]", "\"");
    r.emplace_back("[\\u2018\\u2019]", "'");
    r.emplace_back("&quot;?", "");
    r.emplace_back("&amp", "");
    r.emplace_back("{d}{1,3}\\.{d}{1,3}\\.{d}{1,3}\\.{d}{1,3}", " ");
    r.emplace_back("{d}:{d}{d}{s}+{end}", "");
    r.emplace_back("\\\\n", " ");
    r.emplace_back("#{d}{1,3}{b}", "");
    r.emplace_back("#{d}{5,}{b}", "");
    r.emplace_back("{b}{d}{6,}{b}", "");
    r.emplace_back("{ns}+\\." TESSERA_FILES, "");
    r.emplace_back("[\"']{2,}", "\"");
    r.emplace_back("\\.{2,}", " ");
    r.emplace_back(
        "[#\\u00ae\\u2022\\u00a9\\u2122&@\\u00b7\\u00ba\\u00bd\\u00be\\u00bf\\u00a1\\u00a7~)"
        "(\\]\\[}{|\\\\/*]+",
        " ");
    r.emplace_back("{s}+\\.{s}+", " ");
    return r;
  }();
  return rules;
}

// Rules for remains of shops, codes and sizes, then blanks and signs at the ends.
const Rules& after_mending() {
  static const Rules rules = [] {
    Rules r;
    r.emplace_back("{b}[a-zA-Z]{1,3}{d}{3,15}{b}", "");
    r.emplace_back("{b}[a-zA-Z]+{d}+[a-zA-Z]+{b}", "");
    r.emplace_back("{b}{d}+[a-zA-Z]+{d}+{b}", "");
    r.emplace_back("(?:worldwide{s}+)?(?:free{s}+)?shipping", "");
    r.emplace_back("(?:free{s})?download(?:{s}free)?", "");
    r.emplace_back("{b}click{b}{s}(?:for|on){s}{w}+", "");
    r.emplace_back("{b}" TESSERA_FILES "(?:{s}images?)?", "");
    r.emplace_back("{b}page{s}+{d}+{b}", "");
    r.emplace_back("{b}{d}*[a-zA-Z]+{d}+[a-zA-Z]+{d}+(?:[a-zA-Z]|{d})*{b}", " ");
    r.emplace_back("{b}{d}+\\.?{d}*[x\\u0445\\u00d7]{d}+\\.?{d}*{b}", "");
    r.emplace_back("{b}{s}+:{s}+", ": ");
    r.emplace_back("(\\P{Nd}[,./]){b}", "$1 ");
    r.emplace_back("{s}+", " ");
    r.emplace_back("\\A[\"']([\\s\\S]+)[\"']{end}", "$1");
    r.emplace_back("\\A['_,\\-:;]", "");
    r.emplace_back("['_,\\-:+]{end}", "");
    r.emplace_back("\\A\\.{ns}+{end}", "");
    return r;
  }();
  return rules;
}

// Decodes "%41+b" to "A b"; each run of ASCII separately, as urllib does.
std::string unquoted(std::string_view text) {
  const auto hex = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const char small = static_cast<char>(c | 0x20);
    return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
  };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && static_cast<unsigned char>(text[end]) < 128) ++end;
    std::string bytes;
    for (; at < end; ++at) {
      const bool escape =
          text[at] == '%' && at + 2 < end && hex(text[at + 1]) >= 0 && hex(text[at + 2]) >= 0;
      if (escape) {
        bytes += static_cast<char>(hex(text[at + 1]) * 16 + hex(text[at + 2]));
        at += 2;
      } else {
        bytes += text[at] == '+' ? ' ' : text[at];
      }
    }
    out += repaired(bytes);
    while (at < text.size() && static_cast<unsigned char>(text[at]) >= 128) out += text[at++];
  }
  return out;
}

/// Letters from 0x80 to 0xff of a single-byte encoding.
std::map<char32_t, unsigned char> letters_of(const char* encoding) {
  UErrorCode status = U_ZERO_ERROR;
  UConverter* const converter = ucnv_open(encoding, &status);
  std::map<char32_t, unsigned char> letters;
  for (int byte = 0x80; byte < 0x100 && U_SUCCESS(status); ++byte) {
    const char input = static_cast<char>(byte);
    UChar units[4];
    const int32_t count = ucnv_toUChars(converter, units, 4, &input, 1, &status);
    if (count == 1 && units[0] != 0xfffd) letters[units[0]] = static_cast<unsigned char>(byte);
  }
  if (converter) ucnv_close(converter);
  require(U_SUCCESS(status), ErrorCode::model, "ICU lacks the encoding {}: is its data installed?",
          encoding);
  return letters;
}

// True if consecutive characters, encoded in a single-byte encoding, form a UTF-8 character.
bool looks_misread(const std::string& text) {
  static const auto encodings = [] {
    std::vector<std::map<char32_t, unsigned char>> all;
    for (const char* name :
         {"iso-8859-1", "windows-1252", "windows-1251", "windows-1250", "windows-1253",
          "windows-1254", "windows-1257", "iso-8859-2", "macintosh", "ibm-437"})
      all.push_back(letters_of(name));
    return all;
  }();
  for (const auto& letters : encodings) {
    int missing = 0;
    for (size_t at = 0; at < text.size();) {
      const auto it = letters.find(next_code_point(text, at));
      const int byte = it == letters.end() ? 0 : it->second;
      const bool follows = byte >= 0x80 && byte < 0xc0;
      if (missing > 0 && follows && --missing == 0) return true;
      if (!follows)
        missing = byte >= 0xf0 && byte < 0xf5 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc2 ? 1 : 0;
      if (byte >= 0xf5) missing = 0;
    }
  }
  return false;
}

// Replaces "&lt;" with its ';', as ftfy does.
std::string closed_references(const std::string& text, TextAllowance& allowance) {
  static const Rule any("&#?[0-9A-Za-z]{1,24};", "");
  if (any.count(wide(text), allowance) == 0) return text;
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text[at] == '&' ? text.find(';', at) : std::string::npos;
    const bool number = at + 1 < text.size() && text[at + 1] == '#';
    std::string replacement;
    if (end != std::string::npos && end - at <= 26) {
      const std::string whole = text.substr(at, end + 1 - at);
      const HtmlEntity* const entity =
          number ? nullptr : html_entity(std::string_view(whole).substr(1, whole.size() - 2));
      if (number) replacement = html_unescaped(whole);
      if (number && replacement.find(';') != std::string::npos) replacement.clear();
      if (entity) replacement = entity->text;
    }
    if (replacement.empty())
      out += text[at++];
    else
      out += replacement, at = end + 1;
  }
  return out;
}

// Fixes single characters: Windows control characters, ligatures, widths, quotes, line ends.
std::string mended_characters(const std::string& text) {
  static const std::map<char32_t, const char*> ligatures = {
      {0x132, "IJ"},         {0x133, "ij"},  {0x149, "\xca\xbcn"}, {0x1f1, "DZ"},
      {0x1f2, "Dz"},         {0x1f3, "dz"},  {0x1c4, "D\xc5\xbd"}, {0x1c5, "D\xc5\xbe"},
      {0x1c6, "d\xc5\xbe"},  {0x1c7, "LJ"},  {0x1c8, "Lj"},        {0x1c9, "lj"},
      {0x1ca, "NJ"},         {0x1cb, "Nj"},  {0x1cc, "nj"},        {0xfb00, "ff"},
      {0xfb01, "fi"},        {0xfb02, "fl"}, {0xfb03, "ffi"},      {0xfb04, "ffl"},
      {0xfb05, "\xc5\xbft"}, {0xfb06, "st"}};
  std::string wider, out;
  for (size_t at = 0; at < text.size();) {
    const size_t from = at;
    const char32_t c = windows_1252(next_code_point(text, at));
    const auto ligature = ligatures.find(c);
    if (ligature != ligatures.end())
      wider += ligature->second;
    else if (c == 0x3000)
      wider += ' ';
    else if (c >= 0xff01 && c < 0xfff0)
      wider += normalized(std::string_view(text).substr(from, at - from), Form::nfkc);
    else
      append(wider, c);
  }
  for (size_t at = 0; at < wider.size();) {
    const char32_t c = next_code_point(wider, at);
    if (c == 0x2bc || (c >= 0x2018 && c <= 0x201b)) {
      out += '\'';
    } else if (c >= 0x201c && c <= 0x201f) {
      out += '"';
    } else if (c == '\r' || c == 0x2028 || c == 0x2029 || c == 0x85) {
      out += '\n';
      if (c == '\r' && at < wider.size() && wider[at] == '\n') ++at;
    } else {
      append(out, c);
    }
  }
  return out;
}

std::string without_controls(const std::string& text, TextAllowance& allowance) {
  static const Rule escapes("\\x{1b}\\[(?:{d}|;)*[a-zA-Z]", "");
  const std::string plain =
      text.find('\x1b') == std::string::npos ? text : narrow(escapes(wide(text), allowance));
  std::string out;
  for (size_t at = 0; at < plain.size();) {
    const char32_t c = next_code_point(plain, at);
    const bool dropped = c < 9 || c == 0xb || (c >= 0xe && c < 0x20) || c == 0x7f ||
                         (c >= 0x206a && c < 0x2070) || c == 0xfeff || (c >= 0xfff9 && c < 0xfffd);
    if (!dropped) append(out, c);
  }
  return out;
}

// Implements ftfy.fix_text without fix_encoding: line by line, until nothing changes.
std::string mended(const std::string& text, TextAllowance& allowance) {
  std::string out;
  bool references = true;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    std::string line = text.substr(at, end - at), before;
    references = references && line.find('<') == std::string::npos;
    for (int round = 0; round < 16 && line != before; ++round) {
      before = line;
      if (references) line = closed_references(line, allowance);
      line = normalized(without_controls(mended_characters(line), allowance), Form::nfc);
    }
    out += line;
    at = end;
  }
  return out;
}

std::string lower_as_python(std::string_view text) {
  return narrow(wide(text).toLower(icu::Locale::getRoot()));
}

std::string stripped_as_python(const std::string& text) {
  size_t begin = text.size(), end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t from = at;
    if (is_python_space(next_code_point(text, at))) continue;
    begin = std::min(begin, from);
    end = at;
  }
  return begin < end ? text.substr(begin, end - begin) : "";
}

CleanCaption cleaned_once(const std::string& prompt, TextAllowance& allowance) {
  static const Rule joints("-|_", " ");
  std::string text = lower_as_python(stripped_as_python(unquoted(prompt)));
  text = html_text(narrow(applied(before_html(), wide(text), allowance)));
  Wide signs = applied(after_html(), wide(text), allowance);
  if (joints.count(signs, allowance) > 3) signs = joints(signs, allowance);
  text = narrow(signs);
  const bool misread = looks_misread(text);
  text = html_unescaped(html_unescaped(mended(text, allowance)));
  return {stripped_as_python(narrow(applied(after_mending(), wide(text), allowance))), misread};
}

}  // namespace

std::string plain_caption(std::string_view prompt) {
  return stripped_as_python(lower_as_python(repaired(prompt)));
}

CleanCaption clean_caption(std::string_view prompt) {
  require(prompt.size() <= kLongest, ErrorCode::usage,
          "a prompt of {} bytes: cleaning takes at most {}; give a shorter one, or `clean_caption` "
          "off",
          prompt.size(), kLongest);
  TextAllowance allowance(prompt.size());
  const CleanCaption first = cleaned_once(repaired(prompt), allowance);
  CleanCaption second = cleaned_once(first.text, allowance);
  second.misread = second.misread || first.misread;
  return second;
}

}  // namespace tessera::caption
