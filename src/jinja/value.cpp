#include "jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/fail.h"
#include "base/stop.h"
#include "tokenizer/unicode.h"

namespace tessera::jinja {
using tokenizer::check_length;
using tokenizer::is_printable;
using tokenizer::next_code_point;

namespace {

using Kind = Value::Kind;

constexpr size_t kDeepest = 200;

size_t sum(size_t a, size_t b) {
  size_t out = 0;
  return __builtin_add_overflow(a, b, &out) ? std::numeric_limits<size_t>::max() : out;
}

// The shortest digits that reproduce a number, in Python's format.
std::string shortest(double x) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::scientific);
  const std::string all(buffer, end.ptr);
  const size_t e = all.find('e');
  const int exponent = std::stoi(all.substr(e + 1));
  std::string digits = all.substr(0, e);
  const std::string sign = digits[0] == '-' ? "-" : "";
  std::erase_if(digits, [](char c) { return c == '.' || c == '-'; });
  const auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    if (count > 1) digits.insert(1, ".");
    return sign + digits + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(size_t(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return sign + digits + std::string(size_t(exponent + 1 - count), '0') + ".0";
  return sign + digits.insert(size_t(exponent) + 1, ".");
}

std::string shown_number(double x, bool json) {
  if (std::isnan(x)) return json ? "NaN" : "nan";
  if (std::isinf(x)) return std::string(x < 0 ? "-" : "") + (json ? "Infinity" : "inf");
  return shortest(x);
}

// Python's repr() of a text.
void quote(const std::string& text, std::string& out) {
  const bool single = text.find('\'') == std::string::npos || text.find('"') != std::string::npos;
  const char quote = single ? '\'' : '"';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    base::check_stop();
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\')
      (out += '\\') += static_cast<char>(c);
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (c == ' ' || is_printable(c))
      out.append(text, begin, at - begin);
    else
      out += c < 0x100     ? fmt::format("\\x{:02x}", uint32_t{c})
             : c < 0x10000 ? fmt::format("\\u{:04x}", uint32_t{c})
                           : fmt::format("\\U{:08x}", uint32_t{c});
  }
  out += quote;
}

void show(const Value& v, std::string& out);

// Python's repr().
void represent(const Value& v, std::string& out) {
  if (v.is(Kind::text))
    quote(v.text(), out);
  else if (v.is(Kind::undefined))
    out += "Undefined";
  else
    show(v, out);
}

// Appends Python's str() to `out`.
void show(const Value& v, std::string& out) {
  const auto next = [&](bool first) {
    check_length(out.size());
    if (!first) out += ", ";
  };
  switch (v.kind()) {
    case Kind::undefined: return;
    case Kind::none: out += "None"; return;
    case Kind::boolean: out += v.boolean() ? "True" : "False"; return;
    case Kind::integer: out += std::to_string(v.whole()); return;
    case Kind::real: out += shown_number(v.number(), false); return;
    case Kind::text: out += v.text(); return;
    case Kind::list: {
      out += v.is_tuple() ? '(' : '[';
      bool first = true;
      for (const Value& item : v.items()) {
        next(std::exchange(first, false));
        represent(item, out);
      }
      out += !v.is_tuple() ? "]" : v.items().size() == 1 ? ",)" : ")";
      return;
    }
    case Kind::dict: {
      out += '{';
      bool first = true;
      for (const auto& [key, value] : v.dict().items()) {
        next(std::exchange(first, false));
        quote(key, out);
        out += ": ";
        represent(value, out);
      }
      out += '}';
      return;
    }
    default: fail(ErrorCode::usage, "a {} cannot be written", kind_name(v));
  }
}

std::string json_text(const std::string& text, bool ascii) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    base::check_stop();
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    static const std::string_view kShort = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
    const size_t letter = c < 128 ? kShort.find(static_cast<char>(c)) : std::string_view::npos;
    if (letter != std::string_view::npos)
      (out += '\\') += kLetters[letter];
    else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000))
      out += c == 0x7f ? "\x7f" : fmt::format("\\u{:04x}", uint32_t{c});
    else if (ascii && c >= 0x10000)
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((uint32_t{c} - 0x10000) >> 10),
                         0xdc00 + ((uint32_t{c} - 0x10000) & 0x3ff));
    else
      out.append(text, begin, at - begin);
  }
  return out += '"';
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}
  std::string out;

  void write(const Value& v, size_t depth) {
    check_length(out.size());
    switch (v.kind()) {
      case Kind::none: out += "null"; break;
      case Kind::boolean: out += v.boolean() ? "true" : "false"; break;
      case Kind::integer: out += std::to_string(v.whole()); break;
      case Kind::real: out += shown_number(v.number(), true); break;
      case Kind::text: out += json_text(v.text(), style_.ascii); break;
      case Kind::list: list(v.items(), depth + 1); break;
      case Kind::dict: dict(v.dict(), depth + 1); break;
      default: fail(ErrorCode::usage, "Object of type {} is not JSON serializable", kind_name(v));
    }
  }

 private:
  void line(bool first, size_t depth) {
    if (!first) out += style_.item;
    if (style_.indent >= 0) (out += '\n').append(depth * static_cast<size_t>(style_.indent), ' ');
  }
  void list(const std::vector<Value>& items, size_t depth) {
    out += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      line(i == 0, depth);
      write(items[i], depth);
    }
    close(items.empty(), depth, ']');
  }
  void dict(const ValueDict& dict, size_t depth) {
    std::vector<const std::pair<std::string, Value>*> items;
    for (const auto& item : dict.items()) items.push_back(&item);
    if (style_.sorted)
      std::sort(items.begin(), items.end(), [](auto* a, auto* b) { return a->first < b->first; });
    out += '{';
    for (size_t i = 0; i < items.size(); ++i) {
      line(i == 0, depth);
      out += json_text(items[i]->first, style_.ascii) + style_.colon;
      write(items[i]->second, depth);
    }
    close(items.empty(), depth, '}');
  }
  void close(bool empty, size_t depth, char mark) {
    if (!empty && style_.indent >= 0)
      (out += '\n').append((depth - 1) * static_cast<size_t>(style_.indent), ' ');
    out += mark;
  }
  const JsonStyle& style_;
};

}  // namespace

struct Value::Nested {
  ValueList list;
  ValueDict dict;
  size_t weight = 1, depth = 1;
};

void ValueDict::set(const std::string& key, Value value) {
  const auto [at, fresh] = at_.emplace(key, items_.size());
  if (fresh)
    items_.emplace_back(key, std::move(value));
  else
    items_[at->second].second = std::move(value);
}

const Value* ValueDict::find(std::string_view key) const {
  const auto it = at_.find(key);
  return it == at_.end() ? nullptr : &items_[it->second].second;
}

size_t Value::depth_of(const Value& value) {
  if (const auto* list = std::get_if<ListHandle>(&value.value_)) return list->nested->depth;
  if (const auto* dict = std::get_if<DictHandle>(&value.value_)) return dict->nested->depth;
  return 0;
}

void Value::add(Nested& to, const Value& part) {
  require(!part.is(Kind::space) && !part.is(Kind::callable), ErrorCode::usage,
          "a {} inside another value is not supported", kind_name(part));
  to.weight = sum(to.weight, part.weight());
  to.depth = std::max(to.depth, depth_of(part) + 1);
  require(to.depth <= kDeepest, ErrorCode::usage, "a value nests more than {} deep", kDeepest);
}

Value Value::undefined(std::string reason) {
  Value value;
  value.value_ = Undefined{std::make_shared<const std::string>(std::move(reason))};
  return value;
}

Value::Value(ValueList list) {
  Nested nested;
  for (const Value& item : list.items) add(nested, item);
  nested.list = std::move(list);
  value_ = ListHandle{std::make_shared<const Nested>(std::move(nested))};
}

Value::Value(ValueDict dict) {
  Nested nested;
  for (const auto& [key, value] : dict.items()) {
    add(nested, value);
    nested.weight = sum(nested.weight, 1 + key.size() / 16);
  }
  nested.dict = std::move(dict);
  value_ = DictHandle{std::make_shared<const Nested>(std::move(nested))};
}

Value Value::space(ValueDict names) {
  Value value;
  value.value_ = std::make_shared<ValueDict>(std::move(names));
  return value;
}

Value Value::callable(Callable callable) {
  Value value;
  value.value_ = std::make_shared<const Callable>(std::move(callable));
  return value;
}

const std::string& Value::why() const {
  static const std::string kNothing = "a value is undefined";
  const auto* of = std::get_if<Undefined>(&value_);
  return of && of->why ? *of->why : kNothing;
}
int64_t Value::whole() const {
  return is(Kind::boolean) ? int64_t{boolean()} : std::get<int64_t>(value_);
}
double Value::number() const {
  return is(Kind::real) ? std::get<double>(value_) : static_cast<double>(whole());
}
const std::vector<Value>& Value::items() const {
  return std::get<ListHandle>(value_).nested->list.items;
}
bool Value::is_tuple() const {
  return is(Kind::list) && std::get<ListHandle>(value_).nested->list.tuple;
}
const ValueDict& Value::dict() const { return std::get<DictHandle>(value_).nested->dict; }

size_t Value::weight() const {
  if (is(Kind::text)) return 1 + text().size() / 16;
  if (const auto* list = std::get_if<ListHandle>(&value_)) return list->nested->weight;
  if (const auto* dict = std::get_if<DictHandle>(&value_)) return dict->nested->weight;
  return 1;
}

void Work::spend(size_t units) {
  base::check_stop();
  require(units <= left, ErrorCode::usage,
          "the chat template takes more steps than its size and the chat's allow; use `raw`");
  left -= units;
}

void Work::text(size_t bytes) {
  check_length(bytes);
  spend(1 + bytes / 16);
}

bool truth(const Value& v) {
  switch (v.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean: return v.boolean();
    case Kind::integer: return v.whole() != 0;
    case Kind::real: return v.number() != 0;
    case Kind::text: return !v.text().empty();
    case Kind::list: return !v.items().empty();
    case Kind::dict: return v.dict().size() > 0;
    default: return true;
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::text: return a.text() == b.text();
    case Kind::list:
      return a.is_tuple() == b.is_tuple() && std::equal(a.items().begin(), a.items().end(),
                                                        b.items().begin(), b.items().end(), equal);
    case Kind::dict:
      return a.dict().size() == b.dict().size() &&
             std::all_of(a.dict().items().begin(), a.dict().items().end(), [&](const auto& item) {
               const Value* other = b.dict().find(item.first);
               return other && equal(item.second, *other);
             });
    case Kind::space: return &a.names() == &b.names();
    case Kind::callable: return &a.callable() == &b.callable();
    default: return true;
  }
}

namespace {

void require_order(const Value& a, const Value& b) {
  const bool comparable = (a.is_number() && b.is_number()) ||
                          (a.is(Kind::text) && b.is(Kind::text)) ||
                          (a.is(Kind::list) && b.is(Kind::list) && a.is_tuple() == b.is_tuple());
  if (comparable) return;
  for (const Value* v : {&a, &b})
    require(!v->is(Kind::undefined), ErrorCode::usage, "{}", v->why());
  fail(ErrorCode::usage, "'{}' and '{}' have no order", kind_name(a), kind_name(b));
}

// Negative, zero or positive as a compares to b, in a single pass; for lists by the first different
// items.
int order(const Value& a, const Value& b) {
  require_order(a, b);
  if (a.is_whole() && b.is_whole()) return a.whole() < b.whole() ? -1 : a.whole() > b.whole();
  if (a.is_number()) return a.number() < b.number() ? -1 : !(a.number() == b.number());
  if (a.is(Kind::text)) return a.text().compare(b.text());
  const auto& x = a.items();
  const auto& y = b.items();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    base::check_stop();
    const bool ordered = x[i].kind() == y[i].kind() && (x[i].is(Kind::list) || x[i].is(Kind::text));
    const int first = ordered ? order(x[i], y[i]) : equal(x[i], y[i]) ? 0 : order(x[i], y[i]);
    if (first != 0) return first;
  }
  return x.size() < y.size() ? -1 : x.size() > y.size();
}

}  // namespace

bool less(const Value& a, const Value& b) { return order(a, b) < 0; }

std::string shown(const Value& v) {
  std::string out;
  show(v, out);
  return out;
}

std::string kind_name(const Value& v) {
  static const char* const kNames[] = {"Undefined", "NoneType", "bool", "int",       "float",
                                       "str",       "list",     "dict", "namespace", "function"};
  return v.is_tuple() ? "tuple" : kNames[static_cast<size_t>(v.kind())];
}

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace tessera::jinja
