#include "caption/html_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "caption/html_entities.h"
#include "tokenizer/unicode.h"

namespace tessera::caption {
using tokenizer::append;
using tokenizer::is_python_space;
using tokenizer::length_of;
using tokenizer::lowered;
using tokenizer::next_code_point;
using tokenizer::stripped;

namespace {

constexpr size_t kNone = std::string_view::npos;

bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool digit(char c) { return c >= '0' && c <= '9'; }
bool hexadecimal(char c) { return digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool name_part(char c) { return letter(c) || digit(c) || c == '-' || c == '.'; }

template <size_t N>
bool one_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Elements with strings that are not text; elements that keep blanks; void elements.
constexpr std::array<std::string_view, 5> kSilent = {"script", "style", "template", "rt", "rp"};
constexpr std::array<std::string_view, 2> kBlanksKept = {"pre", "textarea"};
constexpr std::array<std::string_view, 24> kEmpty = {
    "area",     "base",    "br",      "col",      "embed", "hr",      "img",    "input",
    "link",     "keygen",  "meta",    "menuitem", "param", "source",  "track",  "wbr",
    "basefont", "bgsound", "command", "frame",    "image", "isindex", "nextid", "spacer"};

// Code points of Windows-1252 from 0x80 on; 0: unassigned.
constexpr std::array<char16_t, 32> kWindows = {
    0x20ac, 0,      0x201a, 0x192,  0x201e, 0x2026, 0x2020, 0x2021, 0x2c6,  0x2030, 0x160,
    0x2039, 0x152,  0,      0x17d,  0,      0,      0x2018, 0x2019, 0x201c, 0x201d, 0x2022,
    0x2013, 0x2014, 0x2dc,  0x2122, 0x161,  0x203a, 0x153,  0,      0x17e,  0x178};

// Parses digits, saturating above the code points.
uint32_t number_of(std::string_view digits, int base) {
  uint64_t value = 0;
  for (const char c : digits) {
    const int d = digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
    value = std::min<uint64_t>(value * static_cast<uint64_t>(base) + static_cast<uint64_t>(d),
                               0x110000);
  }
  return static_cast<uint32_t>(value);
}

bool no_character(uint32_t c) { return c == 0 || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff); }

/// Collects the text of a document, element by element.
class Document {
 public:
  void data(std::string_view text) {
    if (!text_) text_.emplace();
    *text_ += text;
  }
  void start(const std::string& name, bool closed) {
    flush(false);
    open_.push_back(name);
    if (closed) return end_element(name);
    if (!one_of(kEmpty, name)) return;
    end_element(name);
    ended_.push_back(name);
  }
  void end(const std::string& name) {
    const auto it = std::find(ended_.begin(), ended_.end(), name);
    if (it == ended_.end()) return end_element(name);
    ended_.erase(it);
  }
  /// Handles non-text parts of an element: only a CDATA section is `visible`.
  void aside(std::string_view text, bool visible) {
    flush(false);
    data(text);
    flush(true, visible);
  }
  std::string finish() {
    flush(false);
    return std::move(result_);
  }

 private:
  void end_element(const std::string& name) {
    flush(false);
    const auto it = std::find(open_.rbegin(), open_.rend(), name);
    if (it != open_.rend()) open_.erase(it.base() - 1, open_.end());
  }
  template <size_t N>
  bool inside(const std::array<std::string_view, N>& names) const {
    return std::any_of(open_.begin(), open_.end(),
                       [&](const std::string& name) { return one_of(names, name); });
  }
  // A string of blanks becomes a single blank.
  void flush(bool special, bool visible = true) {
    if (!text_) return;
    std::string text = *std::exchange(text_, std::nullopt);
    if (text.find_first_not_of(" \n\t\f\r") == kNone && !inside(kBlanksKept))
      text = text.find('\n') == kNone ? " " : "\n";
    if (visible && (special || !inside(kSilent))) result_ += text;
  }
  std::string result_;
  std::optional<std::string> text_;
  std::vector<std::string> open_, ended_;
};

/// Parses a text as html.parser does: once as if more input followed, then to the end.
class Walk {
 public:
  explicit Walk(std::string_view text) : text_(text) {}
  std::string run() {
    for (const bool last : {false, true}) go(last);
    if (at_ < text_.size() && raw_.empty()) out_.data(text_.substr(at_));
    return out_.finish();
  }

 private:
  bool here(std::string_view prefix) const { return text_.substr(at_).starts_with(prefix); }
  char peek(size_t at) const { return at < text_.size() ? text_[at] : '\0'; }
  bool letter_at(size_t at) const { return at < text_.size() && letter(text_[at]); }

  void go(bool last);
  bool reference(bool last);
  bool number();
  size_t markup();
  size_t start_tag();
  size_t end_tag();
  size_t section();
  size_t find_end_of_raw(size_t from) const;
  size_t whole_tag() const;
  size_t blanks(size_t at, bool slashes) const;
  size_t attribute(size_t at) const;
  size_t tag_name(size_t at) const;

  std::string_view text_;
  size_t at_ = 0;
  std::string raw_;  // "script" or "style", whose contents are not markup
  Document out_;
};

// Skips blanks and, with `slashes`, slashes that close no tag.
size_t Walk::blanks(size_t at, bool slashes) const {
  while (at < text_.size()) {
    size_t next = at;
    const char32_t c = next_code_point(text_, next);
    const bool slash = slashes && c == '/' && peek(next) != '>';
    if (!slash && !is_python_space(c)) break;
    at = next;
  }
  return at;
}

size_t Walk::tag_name(size_t at) const {
  const size_t end = text_.find_first_of(std::string_view("\t\n\r\f />\0", 8), at);
  return std::min(end, text_.size());
}

// End of an attribute that begins at `at`; `at` itself: none.
size_t Walk::attribute(size_t at) const {
  if (at == 0 || at >= text_.size()) return at;
  size_t before = at - 1;
  while (before > 0 && (static_cast<unsigned char>(text_[before]) & 0xc0) == 0x80) --before;
  const char32_t previous = next_code_point(text_, before);
  if (previous != '\'' && previous != '"' && previous != '/' && !is_python_space(previous))
    return at;
  const auto stops = [&](size_t place, std::string_view more) {
    size_t next = place;
    const char32_t c = next_code_point(text_, next);
    return is_python_space(c) || (c < 128 && more.find(static_cast<char>(c)) != kNone);
  };
  const auto skip = [&](size_t place, std::string_view more) {
    while (place < text_.size() && !stops(place, more)) place += length_of(text_[place]);
    return place;
  };
  if (stops(at, "/>")) return at;
  size_t end = skip(at + length_of(text_[at]), "/=>");
  size_t value = blanks(end, false);
  if (peek(value) == '=') {
    const size_t first = value;
    while (peek(value) == '=') ++value;
    const size_t equals = value;
    value = blanks(value, false);
    const char quote = peek(value);
    if (quote == '\'' || quote == '"') {
      const size_t close = text_.find(quote, value + 1);
      if (close != kNone)
        end = close + 1;
      else if (value > equals)
        end = equals;
      else if (equals > first + 1)
        end = skip(equals - 1, ">");  // the last '=' belongs to the value
    } else {
      end = skip(value, ">");
    }
  }
  return blanks(end, true);
}

// End of the tag that begins here; kNone: possibly incomplete.
size_t Walk::whole_tag() const {
  size_t at = tag_name(at_ + 1);
  size_t next = at;
  while (next < text_.size()) {  // [\s/]* before the first attribute
    size_t after = next;
    const char32_t c = next_code_point(text_, after);
    if (c != '/' && !is_python_space(c)) break;
    next = after;
  }
  const size_t first = attribute(next);
  if (first != next) {
    at = first;
    for (size_t more = attribute(at); more != at; more = attribute(at)) at = more;
  } else {
    at = next;
  }
  at = blanks(at, false);
  const char c = peek(at);
  if (at >= text_.size()) return kNone;
  if (c == '>') return at + 1;
  if (c == '/') return peek(at + 1) == '>' ? at + 2 : kNone;
  if (letter(c) || c == '=') return kNone;
  return at > at_ ? at : at_ + 1;
}

size_t Walk::start_tag() {
  const size_t end = whole_tag();
  if (end == kNone) return kNone;
  size_t at = tag_name(at_ + 1);
  const std::string name = lowered(text_.substr(at_ + 1, at - at_ - 1));
  at = blanks(at, true);
  while (at < end) {
    const size_t next = attribute(at);
    if (next == at) break;
    at = next;
  }
  const std::string rest =
      at < end ? stripped(std::string(text_.substr(at, end - at))) : std::string();
  if (rest != ">" && rest != "/>") {
    out_.data(text_.substr(at_, end - at_));
    return end;
  }
  out_.start(name, rest == "/>");
  if (rest == ">" && (name == "script" || name == "style")) raw_ = name;
  return end;
}

size_t Walk::end_tag() {
  const size_t close = text_.find('>', at_ + 1);
  if (close == kNone) return kNone;
  size_t from = blanks(at_ + 2, false), to = from;
  if (letter_at(from))
    while (to < text_.size() && (name_part(text_[to]) || text_[to] == ':' || text_[to] == '_'))
      ++to;
  const size_t end = blanks(to, false);
  if (to > from && peek(end) == '>') {
    const std::string name = lowered(text_.substr(from, to - from));
    if (!raw_.empty() && name != raw_) {
      out_.data(text_.substr(at_, close + 1 - at_));
      return close + 1;
    }
    out_.end(name);
    raw_.clear();
    return end + 1;
  }
  if (!raw_.empty()) {
    out_.data(text_.substr(at_, close + 1 - at_));
    return close + 1;
  }
  if (letter_at(at_ + 2)) {
    const size_t name_end = tag_name(at_ + 2);
    out_.end(lowered(text_.substr(at_ + 2, name_end - at_ - 2)));
    return text_.find('>', blanks(name_end, true)) + 1;
  }
  if (peek(at_ + 2) != '>') out_.aside("", false);
  return close + 1;
}

// Parses "<![cdata[ ... ]]>" and similar sections.
size_t Walk::section() {
  const size_t from = at_ + 3;
  size_t to = from;
  while (to < text_.size() && (name_part(text_[to]) || text_[to] == '_')) ++to;
  const std::string name = letter_at(from) ? lowered(text_.substr(from, to - from)) : "";
  to = blanks(to, false);
  if (to == text_.size()) return kNone;
  const bool conditional = name == "if" || name == "else" || name == "endif";
  if (!conditional && name != "temp" && name != "cdata" && name != "ignore" && name != "include" &&
      name != "rcdata") {
    out_.data("<![");  // the reference stops here
    return from;
  }
  for (size_t close = text_.find(']', from); close != kNone; close = text_.find(']', close + 1)) {
    size_t end = blanks(close + 1, false);
    if (!conditional) {
      if (peek(end) != ']') continue;
      end = blanks(end + 1, false);
    }
    if (peek(end) != '>') continue;
    std::string_view inside = text_.substr(from, close - from);
    const bool cdata = lowered(inside.substr(0, 6)) == "cdata[";
    out_.aside(cdata ? inside.substr(6) : inside, cdata);
    return end + 1;
  }
  return kNone;
}

// Parses markup at '<'; kNone: no end.
size_t Walk::markup() {
  if (letter_at(at_ + 1)) return start_tag();
  if (here("</")) return end_tag();
  if (here("<!--")) {
    for (size_t dash = text_.find("--", at_ + 4); dash != kNone;
         dash = text_.find("--", dash + 1)) {
      const size_t end = blanks(dash + 2, false);
      if (peek(end) != '>') continue;
      out_.aside("", false);
      return end + 1;
    }
    return kNone;
  }
  if (here("<![")) return section();
  if (!here("<!") && !here("<?")) return at_;
  const bool doctype = lowered(text_.substr(at_, 9)) == "<!doctype";
  const size_t close = text_.find('>', at_ + (doctype ? 9 : 2));
  if (close == kNone) return kNone;
  out_.aside("", false);
  return close + 1;
}

// Parses "&#..."; returns true if the walk continues.
bool Walk::number() {
  const bool hex = (peek(at_ + 2) | 0x20) == 'x';
  const size_t from = at_ + (hex ? 3 : 2);
  size_t to = from;
  while (to < text_.size() && (hex ? hexadecimal(text_[to]) : digit(text_[to]))) ++to;
  size_t end = to;  // ends at a character that is not a hexadecimal digit, decimal one before
  if (!hex && end < text_.size() && hexadecimal(text_[end])) end = text_.size();
  if (to == from || end >= text_.size()) {
    if (text_.find(';', at_) == kNone) return false;
    out_.data("&#");
    at_ += 2;
    return false;
  }
  const uint32_t c = number_of(text_.substr(from, to - from), hex ? 16 : 10);
  std::string character;
  append(character, no_character(c) ? 0xfffd : windows_1252(c));
  out_.data(character);
  at_ = end + (text_[end] == ';' ? 1 : 0);
  return true;
}

// Parses a reference at '&'; returns true if the walk continues.
bool Walk::reference(bool last) {
  if (peek(at_ + 1) == '#') return number();
  if (letter_at(at_ + 1)) {
    size_t to = at_ + 1;
    while (to < text_.size() && name_part(text_[to])) ++to;
    // A character other than a letter must follow the name, if need be '-' or '.'.
    while (to > at_ + 1 && (to >= text_.size() || letter(text_[to]) || digit(text_[to]))) --to;
    if (to > at_ + 1) {
      const std::string_view name = text_.substr(at_ + 1, to - at_ - 1);
      const HtmlEntity* const entity = html_entity(name);
      out_.data(entity ? entity->text : "&" + std::string(name));
      at_ = to + (text_[to] == ';' ? 1 : 0);
      return true;
    }
    if (last && at_ + 2 == text_.size()) ++at_;
    return false;
  }
  if (at_ + 1 >= text_.size()) return false;
  out_.data("&");
  ++at_;
  return true;
}

size_t Walk::find_end_of_raw(size_t from) const {
  for (size_t at = text_.find("</", from); at != kNone; at = text_.find("</", at + 1)) {
    const size_t name = blanks(at + 2, false);
    if (lowered(text_.substr(name, raw_.size())) != raw_) continue;
    if (peek(blanks(name + raw_.size(), false)) == '>') return at;
  }
  return kNone;
}

void Walk::go(bool last) {
  while (at_ < text_.size()) {
    size_t next = raw_.empty() ? text_.find_first_of("&<", at_) : find_end_of_raw(at_);
    if (next == kNone && !raw_.empty()) return;
    next = std::min(next, text_.size());
    if (at_ < next) out_.data(text_.substr(at_, next - at_));
    at_ = next;
    if (at_ == text_.size()) return;
    if (text_[at_] == '&') {
      if (!reference(last)) return;
      continue;
    }
    size_t end = markup();
    if (end == at_) {  // a '<' without markup
      if (at_ + 1 >= text_.size()) return;
      out_.data("<");
      end = at_ + 1;
    } else if (end == kNone) {
      if (!last) return;
      end = text_.find('>', at_ + 1);
      if (end != kNone)
        ++end;
      else
        end = text_.find('<', at_ + 1);
      if (end == kNone) end = at_ + 1;
      out_.data(text_.substr(at_, end - at_));
    }
    at_ = end;
  }
}

}  // namespace

char32_t windows_1252(char32_t control) {
  if (control < 0x80 || control > 0x9f || kWindows[control - 0x80] == 0) return control;
  return kWindows[control - 0x80];
}

std::string html_text(std::string_view text) { return Walk(text).run(); }

namespace {

// Length of the longest name at the front of `text` that is valid here, 0 for none.
size_t append_entity(std::string_view text, std::string& out) {
  size_t end = 0;
  for (size_t count = 0; end < text.size() && count < 32; ++count) {
    if (std::string_view("\t\n\f <&#;").find(text[end]) != kNone) break;
    end += length_of(text[end]);
  }
  const bool closed = end > 0 && end < text.size() && text[end] == ';';
  for (size_t length = end; length > 0; --length) {
    const HtmlEntity* const entity = html_entity(text.substr(0, length));
    const bool whole = length == end && closed;
    if (!entity || (!whole && (!entity->bare || length < 2))) continue;
    out += entity->text;
    return length + (whole ? 1 : 0);
  }
  return 0;
}

size_t numbered(std::string_view text, std::string& out) {
  const bool hex = text.size() > 1 && (text[1] | 0x20) == 'x';
  const size_t from = hex ? 2 : 1;
  size_t to = from;
  while (to < text.size() && (hex ? hexadecimal(text[to]) : digit(text[to]))) ++to;
  if (to == from) return 0;
  const uint32_t c = number_of(text.substr(from, to - from), hex ? 16 : 10);
  const bool dropped = (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f ||
                       (c >= 0xfdd0 && c <= 0xfdef) || (c & 0xfffe) == 0xfffe;
  if (no_character(c))
    append(out, 0xfffd);
  else if (!dropped)
    append(out, windows_1252(c));
  return to + (to < text.size() && text[to] == ';' ? 1 : 0);
}

}  // namespace

std::string html_unescaped(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '&') {
      const std::string_view rest = text.substr(at + 1);
      const size_t used = rest.starts_with('#') ? numbered(rest, out) : append_entity(rest, out);
      if (used > 0) {
        at += 1 + used;
        continue;
      }
    }
    out += text[at++];
  }
  return out;
}

}  // namespace tessera::caption
