#include "jinja/lexer.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"
#include "jinja/text.h"
#include "tokenizer/unicode.h"

namespace tessera::jinja {
using tokenizer::append;
using tokenizer::length_of;

namespace {

using Kind = TemplateToken::Kind;

constexpr size_t kLongestName = 100;  // names appear in error messages

// Converts every kind of line end to a newline, and drops the last newline of the source.
std::string with_newlines(const std::string& source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

bool digit(char c) { return c >= '0' && c <= '9'; }
bool letter(char c) { return c == '_' || std::isalpha(static_cast<unsigned char>(c)); }

class Lexer {
 public:
  Lexer(const std::string& source, const std::string& where)
      : source_(with_newlines(source)), where_(where) {}

  std::vector<TemplateToken> all() {
    while (at_ < source_.size()) data();
    give(Kind::end, "");
    return std::move(tokens_);
  }

 private:
  char now(size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  bool here(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }
  [[noreturn]] void refuse(const std::string& problem) const {
    fail(ErrorCode::model, "{}: line {}: {}", where_, line_, problem);
  }
  void give(Kind kind, std::string text) {
    base::check_stop();
    tokens_.push_back({kind, std::move(text), line_});
  }
  void skip(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + std::ptrdiff_t(at_),
                                         source_.begin() + std::ptrdiff_t(at_ + bytes), '\n'));
    at_ += bytes;
    line_starts_ = at_ > 0 && source_[at_ - 1] == '\n';
  }
  void skip_blanks() {
    skip(source_.size() - at_ - trimmed(std::string_view(source_).substr(at_), true, false).size());
  }

  // Reads text up to the next tag, trimmed by the tag's sign or lstrip_blocks; then the tag.
  void data() {
    size_t open = source_.find('{', at_);
    while (open != std::string::npos && open + 1 < source_.size() &&
           std::string_view("{%#").find(source_[open + 1]) == std::string_view::npos)
      open = source_.find('{', open + 1);
    if (open == std::string::npos || open + 1 >= source_.size()) open = source_.size();
    text(open);
    if (at_ >= source_.size()) return;
    const char kind = source_[at_ + 1];
    skip(2 + (now(2) == '-' || now(2) == '+'));
    if (kind == '#') return comment();
    if (kind == '%' && raw()) return;
    give(kind == '{' ? Kind::print : Kind::statement, "");
    tag(kind == '{' ? "}}" : "%}");
    give(kind == '{' ? Kind::print_end : Kind::statement_end, "");
    close(kind != '{');
  }
  void text(size_t open) {
    const std::string_view whole = std::string_view(source_).substr(at_, open - at_);
    std::string_view text = whole;
    const char kind = open < source_.size() ? source_[open + 1] : '{';
    const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    if (open < source_.size() && sign == '-') {
      text = trimmed(text, false, true);
    } else if (sign != '+' && kind != '{') {
      const size_t newline = text.rfind('\n');
      const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((begin > 0 || line_starts_) && trimmed(text.substr(begin), true, true).empty())
        text = text.substr(0, begin);
    }
    if (!text.empty()) give(Kind::data, std::string(text));
    skip(whole.size());
  }
  // Reads the end of a tag, and the white space removed after the tag.
  void close(bool block) {
    const char sign = now();
    skip(2 + (sign == '-' || sign == '+'));
    if (sign == '-')
      skip_blanks();
    else if (block && sign != '+' && now() == '\n')
      skip(1);
  }
  void comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) refuse("'#}' is missing");
    const bool sign = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    skip(end - at_ - sign);
    close(true);
  }

  // Reads {% raw %} ... {% endraw %}: text unchanged.
  bool raw() {
    const size_t word = at_ + blanks(at_);
    if (source_.compare(word, 3, "raw") != 0) return false;
    size_t end = word + 3 + blanks(word + 3);
    const bool strip = source_.compare(end, 1, "-") == 0;
    if (source_.compare(end + strip, 2, "%}") != 0) return false;
    skip(end + strip + 2 - at_);
    if (strip) skip_blanks();
    for (size_t open = source_.find("{%", at_); open != std::string::npos;
         open = source_.find("{%", open + 2)) {
      size_t name =
          open + 2 +
          (open + 2 < source_.size() && (source_[open + 2] == '-' || source_[open + 2] == '+'));
      name += blanks(name);
      if (source_.compare(name, 6, "endraw") != 0) continue;
      end = name + 6 + blanks(name + 6);
      const size_t mark =
          end + (source_.compare(end, 1, "-") == 0 || source_.compare(end, 1, "+") == 0);
      if (source_.compare(mark, 2, "%}") != 0) continue;
      text(open);
      skip(end - at_);
      close(true);
      return true;
    }
    refuse("'endraw' is missing");
  }
  size_t blanks(size_t from) const {
    const size_t end = source_.find_first_not_of(" \t\n\r\f\v", from);
    return (end == std::string::npos ? source_.size() : end) - std::min(from, source_.size());
  }

  void tag(std::string_view mark) {
    std::string open;  // brackets still open
    for (;;) {
      skip(blanks(at_));
      if (at_ >= source_.size()) refuse(fmt::format("'{}' is missing", mark));
      const bool sign = now() == '-' || (now() == '+' && mark == "%}");
      if (open.empty() && source_.compare(at_ + sign, 2, mark) == 0) return;
      const char c = now();
      if (letter(c)) {
        size_t length = 1;
        while (letter(now(length)) || digit(now(length))) ++length;
        if (length > kLongestName) refuse(fmt::format("a name of {} bytes", length));
        give(Kind::name, source_.substr(at_, length));
        skip(length);
      } else if (digit(c)) {
        number();
      } else if (c == '"' || c == '\'') {
        quoted();
      } else {
        operators(open);
      }
    }
  }
  void operators(std::string& open) {
    static const char* const kTwo[] = {"==", "!=", "<=", ">=", "//", "**"};
    for (const char* two : kTwo)
      if (here(two)) {
        give(Kind::sign, two);
        return skip(2);
      }
    const char c = now();
    static const std::string_view kSigns = "+-/*%~[](){}<>=.:|,;";
    if (kSigns.find(c) == std::string_view::npos)
      refuse(fmt::format("the sign {}", base::printable(source_.substr(at_, length_of(c)))));
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) refuse(fmt::format("a '{}' that closes nothing", c));
      open.pop_back();
    }
    give(Kind::sign, std::string(1, c));
    skip(1);
  }
  void digits(std::string& to) {
    while (digit(now()) || (now() == '_' && digit(now(1)))) {
      if (now() != '_') to += now();
      ++at_;
    }
  }
  void number() {
    std::string text;
    digits(text);
    Kind kind = Kind::whole;
    if (now() == '.' && digit(now(1))) {
      kind = Kind::real;
      text += source_[at_++];
      digits(text);
    }
    const bool sign = now(1) == '+' || now(1) == '-';
    if ((now() == 'e' || now() == 'E') && digit(now(1 + sign))) {
      kind = Kind::real;
      text += source_.substr(at_, 1 + sign);
      at_ += 1 + sign;
      digits(text);
    }
    if (letter(now())) refuse("a number that is none");
    give(kind, text);
  }
  void quoted() {
    const char quote = now();
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) refuse("a text is not closed");
    give(Kind::text, unescaped(source_.substr(at_ + 1, end - at_ - 1)));
    skip(end + 1 - at_);
  }
  // Decodes Python's escapes.
  std::string unescaped(const std::string& text) const {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\') {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      static const std::string_view kLetters = "\\'\"ntrabfv", kValues = "\\'\"\n\t\r\a\b\f\v";
      const size_t letter = kLetters.find(c);
      const size_t hex = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      if (letter != std::string_view::npos) {
        out += kValues[letter];
      } else if (hex > 0) {
        const std::string code = text.substr(i + 1, hex);
        const bool all =
            code.size() == hex &&
            std::all_of(code.begin(), code.end(), [](unsigned char d) { return std::isxdigit(d); });
        const unsigned long value = all ? std::stoul(code, nullptr, 16) : 0x110000;
        if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
          refuse("an escape that is none");
        append(out, static_cast<char32_t>(value));
        i += hex;
      } else if (c >= '0' && c <= '7') {
        char32_t value = 0;
        size_t count = 0;
        for (; count < 3 && i + count < text.size() && text[i + count] >= '0' &&
               text[i + count] <= '7';
             ++count)
          value = value * 8 + static_cast<char32_t>(text[i + count] - '0');
        append(out, value);
        i += count - 1;
      } else if (c == 'N') {
        refuse("the escape \\N");
      } else if (c != '\n') {
        (out += '\\') += c;
      }
    }
    return out;
  }

  std::string source_;
  const std::string& where_;
  std::vector<TemplateToken> tokens_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
};

}  // namespace

std::vector<TemplateToken> template_tokens(const std::string& source, const std::string& where) {
  return Lexer(source, where).all();
}

}  // namespace tessera::jinja
