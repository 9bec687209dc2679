#include "jinja/methods.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/fail.h"
#include "base/find_text.h"
#include "base/printable.h"
#include "base/stop.h"
#include "jinja/text.h"
#include "tokenizer/unicode.h"

namespace tessera::jinja {
using tokenizer::check_length;
using tokenizer::in_lower_case;
using tokenizer::in_upper_case;
using tokenizer::length_of;

namespace {

using Kind = Value::Kind;
using Names = std::initializer_list<std::string_view>;

const Names kText = {
    "capitalize", "count",        "endswith",     "find",  "isalnum",    "isalpha", "isdigit",
    "islower",    "isspace",      "isupper",      "join",  "lower",      "lstrip",  "partition",
    "replace",    "removeprefix", "removesuffix", "rfind", "rpartition", "rsplit",  "rstrip",
    "split",      "splitlines",   "startswith",   "strip", "title",      "upper",   "zfill"};
const Names kRefused = {"casefold",   "center",      "encode",   "expandtabs", "format",
                        "format_map", "index",       "isascii",  "isdecimal",  "isidentifier",
                        "isnumeric",  "isprintable", "istitle",  "ljust",      "maketrans",
                        "rindex",     "rjust",       "swapcase", "translate"};
const Names kDict = {"copy", "get", "items", "keys", "values"};
const Names kList = {"count", "index"};
// Methods that change values; transformers' immutable sandbox refuses them.
const Names kChanging = {"append", "clear",   "extend", "insert",     "pop",   "popitem",
                         "remove", "reverse", "sort",   "setdefault", "update"};

bool among(Names names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string object_of(const Value& of) {
  return of.is(Kind::none) ? "None" : kind_name(of) + " object";
}

Value bound(const Value& self, const std::string& name) {
  return Value::callable({name, self, nullptr});
}

std::vector<Value> values_of(const std::vector<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

// The character at a position; advances the position. ASCII characters are cached.
Value character_at(const std::string& text, size_t& at) {
  static const std::array<Value, 128> kAscii = [] {
    std::array<Value, 128> all;
    for (size_t c = 0; c < all.size(); ++c) all[c] = std::string(1, static_cast<char>(c));
    return all;
  }();
  base::check_stop();
  const size_t begin = at, length = length_of(text[at]);
  at += length;
  if (length == 1) return kAscii[static_cast<unsigned char>(text[begin]) & 0x7fu];
  return text.substr(begin, length);
}

// True if a text begins or ends with a text, or with any of several.
Value edge(const std::string& text, const std::string& name, const Arguments& arguments,
           Work& work) {
  const auto values = arguments.bind(name, {"what", "start", "end"}, 1);
  if (values[1] || values[2]) fail(ErrorCode::model, "'{}' with bounds is not supported", name);
  auto fits = [&](const Value& prefix) {
    work.spend(prefix.weight());
    const std::string part = text_of(&prefix, name);
    return name == "startswith" ? text.starts_with(part) : text.ends_with(part);
  };
  if (!values[0]->is(Kind::list)) return fits(*values[0]);
  return std::any_of(values[0]->items().begin(), values[0]->items().end(), fits);
}

Value find_method(const std::string& text, const std::string& name, const Arguments& arguments) {
  const auto values = arguments.bind(name, {"what", "start", "end"}, 1);
  if (values[1] || values[2]) fail(ErrorCode::model, "'{}' with bounds is not supported", name);
  const std::string part = text_of(values[0], name);
  if (name == "count") {
    if (part.empty()) return character_count(text) + 1;
    int64_t count = 0;
    for (size_t at = 0; (at = base::find_text(text, part, at)) != std::string::npos;
         at += part.size())
      ++count;
    return count;
  }
  const size_t at = name == "find" ? base::find_text(text, part) : base::find_last_text(text, part);
  return at == std::string::npos ? int64_t{-1}
                                 : character_count(std::string_view(text).substr(0, at));
}

Value parted(const std::string& text, const std::string& name, const Arguments& arguments) {
  const std::string by = text_of(arguments.bind(name, {"sep"}, 1)[0], name);
  require(!by.empty(), ErrorCode::usage, "'{}' at nothing", name);
  const size_t at =
      name == "partition" ? base::find_text(text, by) : base::find_last_text(text, by);
  if (at == std::string::npos)
    return name == "partition" ? Value::tuple({text, "", ""}) : Value::tuple({"", "", text});
  return Value::tuple({text.substr(0, at), by, text.substr(at + by.size())});
}

Value cut(const std::string& text, const std::string& name, const Arguments& arguments,
          Work& work) {
  if (name == "splitlines") {
    const auto values = arguments.bind(name, {"keepends"});
    auto lines = lines_of(text, values[0] && truth(*values[0]));
    work.spend(lines.size());
    return Value::list(values_of(lines));
  }
  const auto values = arguments.bind(name, {"sep", "maxsplit"});
  const bool blanks = !values[0] || values[0]->is(Kind::none);
  const std::string by = blanks ? "" : text_of(values[0], name);
  require(blanks || !by.empty(), ErrorCode::usage, "'{}' at nothing", name);
  auto parts = split(text, by, whole_of(values[1], name, -1), name == "rsplit");
  work.spend(parts.size());
  return Value::list(values_of(parts));
}

Value stripped_of(const std::string& text, const std::string& name, const Arguments& arguments) {
  const auto values = arguments.bind(name, {"chars"});
  const bool blanks = !values[0] || values[0]->is(Kind::none);
  const std::string characters = blanks ? "" : text_of(values[0], name);
  if (!blanks && characters.empty()) return text;
  return std::string(trimmed(text, name != "rstrip", name != "lstrip", characters));
}

Value replaced_in(const std::string& text, const Arguments& arguments, Work& work) {
  const auto values = arguments.bind("replace", {"old", "new", "count"}, 2);
  std::string out = replaced(text, text_of(values[0], "replace"), text_of(values[1], "replace"),
                             whole_of(values[2], "replace", -1));
  work.text(out.size());
  return out;
}

Value text_method(const std::string& text, const std::string& name, const Arguments& arguments,
                  Work& work) {
  work.text(text.size());
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return stripped_of(text, name, arguments);
  if (name == "startswith" || name == "endswith") return edge(text, name, arguments, work);
  if (name == "split" || name == "rsplit" || name == "splitlines")
    return cut(text, name, arguments, work);
  if (name == "replace") return replaced_in(text, arguments, work);
  if (name == "find" || name == "rfind" || name == "count")
    return find_method(text, name, arguments);
  if (name == "partition" || name == "rpartition") return parted(text, name, arguments);
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string part = text_of(arguments.bind(name, {"part"}, 1)[0], name);
    const bool front = name == "removeprefix";
    if (!(front ? text.starts_with(part) : text.ends_with(part))) return text;
    return text.substr(front ? part.size() : 0, text.size() - part.size());
  }
  if (name == "join") {
    std::string out;
    bool first = true;
    for (const Value& item : walked(*arguments.bind(name, {"items"}, 1)[0], work)) {
      const std::string part = text_of(&item, name);
      work.text(text.size() + part.size());
      check_length(out.size() + text.size() + part.size());
      (out += first ? "" : text) += part;
      first = false;
    }
    return out;
  }
  if (name == "zfill") {
    const int64_t missing =
        whole_of(arguments.bind(name, {"width"}, 1)[0], name, 0) - character_count(text);
    if (missing <= 0) return text;
    work.text(static_cast<size_t>(missing));
    const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
    return text.substr(0, sign) + std::string(static_cast<size_t>(missing), '0') +
           text.substr(sign);
  }
  arguments.bind(name, {});
  if (name == "upper") return in_upper_case(text);
  if (name == "lower") return in_lower_case(text);
  if (name == "title") return titled(text);
  if (name == "capitalize") return capitalized(text);
  return all_of_kind(text, name);
}

Value dict_method(const Value& self, const std::string& name, const Arguments& arguments,
                  Work& work) {
  if (name == "get") {
    const auto values = arguments.bind(name, {"key", "default"}, 1);
    const Value* item = values[0]->is(Kind::text) ? self.dict().find(values[0]->text()) : nullptr;
    return item ? *item : values[1] ? *values[1] : Value(nullptr);
  }
  arguments.bind(name, {});
  if (name == "copy") return self;
  work.spend(self.dict().size());
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().items())
    items.push_back(name == "keys"     ? Value(key)
                    : name == "values" ? value
                                       : Value::tuple({key, value}));
  return Value::list(std::move(items));
}

Value list_method(const Value& self, const std::string& name, const Arguments& arguments,
                  Work& work) {
  const Value& value = *arguments.bind(name, {"what"}, 1)[0];
  work.spend(self.weight());
  const auto& items = self.items();
  auto same = [&](const Value& item) { return equal(item, value); };
  if (name == "count") return std::count_if(items.begin(), items.end(), same);
  const auto at = std::find_if(items.begin(), items.end(), same);
  require(at != items.end(), ErrorCode::usage, "what 'index' looks for is not in the list");
  return at - items.begin();
}

}  // namespace

void Arguments::spend(Work& work) const {
  for (const Value& value : places)
    if (value.is(Kind::text)) work.spend(value.weight());
  for (const auto& [name, value] : names)
    if (value.is(Kind::text)) work.spend(value.weight());
}

std::vector<const Value*> Arguments::bind(const std::string& of,
                                          std::initializer_list<const char*> parameters,
                                          size_t least) const {
  require(places.size() <= parameters.size(), ErrorCode::usage,
          "'{}' takes at most {} arguments; {} are given", of, parameters.size(), places.size());
  std::vector<const Value*> bound(parameters.size());
  for (size_t i = 0; i < places.size(); ++i) bound[i] = &places[i];
  for (const auto& [name, value] : names) {
    const auto at = std::find(parameters.begin(), parameters.end(), name);
    require(at != parameters.end(), ErrorCode::usage, "'{}' has no argument {}", of,
            base::printable(name));
    bound[static_cast<size_t>(at - parameters.begin())] = &value;
  }
  for (size_t i = 0; i < least; ++i)
    require(bound[i] != nullptr, ErrorCode::usage, "'{}' needs {} arguments", of, least);
  return bound;
}

std::string text_of(const Value* argument, const std::string& of, const std::string& missing) {
  if (!argument) return missing;
  require(argument->is(Kind::text), ErrorCode::usage, "'{}' of a value of kind {}; expected text",
          of, kind_name(*argument));
  return argument->text();
}

int64_t whole_of(const Value* argument, const std::string& of, int64_t missing) {
  if (!argument) return missing;
  require(argument->is_whole(), ErrorCode::usage,
          "'{}' of a value of kind {}; expected a whole number", of, kind_name(*argument));
  return argument->whole();
}

Value attribute(const Value& of, const std::string& name) {
  require(!of.is(Kind::undefined), ErrorCode::usage, "{}", of.why());
  if (of.is(Kind::space)) {
    const Value* value = of.names().find(name);
    if (value) return *value;
  }
  if (of.is(Kind::text)) {
    if (among(kText, name)) return bound(of, name);
    if (among(kRefused, name))
      fail(ErrorCode::model, "the method '{}' is not supported in chat templates; use `raw`", name);
  }
  if (of.is(Kind::list) && among(kList, name)) return bound(of, name);
  if (of.is(Kind::dict)) {
    if (among(kDict, name)) return bound(of, name);
    if (!among(kChanging, name))
      if (const Value* item = of.dict().find(name)) return *item;
  }
  if ((of.is(Kind::list) || of.is(Kind::dict)) && among(kChanging, name))
    return Value::undefined(
        fmt::format("'{}' would change a value; a chat template may not", name));
  return Value::undefined(
      fmt::format("'{}' has no attribute {}", object_of(of), base::printable(name)));
}

Value element(const Value& of, const Value& key, Work& work) {
  work.spend(key.weight());
  require(!of.is(Kind::undefined), ErrorCode::usage, "{}", of.why());
  if (of.is(Kind::dict) && key.is(Kind::text)) {
    if (const Value* item = of.dict().find(key.text())) return *item;
    return attribute(of, key.text());
  }
  if (key.is(Kind::text)) return attribute(of, key.text());
  if (key.is_whole() && (of.is(Kind::list) || of.is(Kind::text))) {
    int64_t at = key.whole();
    if (of.is(Kind::list)) {
      const auto size = static_cast<int64_t>(of.items().size());
      if (at < 0) at += size;
      if (at >= 0 && at < size) return of.items()[static_cast<size_t>(at)];
    } else {
      work.text(of.text().size() * 4);
      const int64_t size = character_count(of.text());
      if (at < 0) at += size;
      if (at >= 0 && at < size) return every(of.text(), at, at + 1, 1);
    }
  }
  return Value::undefined(fmt::format("'{}' has no element of this index", object_of(of)));
}

Value slice(const Value& of, const Value* from, const Value* to, const Value* step, Work& work) {
  require(!of.is(Kind::undefined), ErrorCode::usage, "{}", of.why());
  require(of.is(Kind::text) || of.is(Kind::list), ErrorCode::usage,
          "a slice of a value of kind {}; expected text or a list", kind_name(of));
  const int64_t size =
      of.is(Kind::text) ? character_count(of.text()) : static_cast<int64_t>(of.items().size());
  of.is(Kind::text) ? work.text(of.text().size() * 16) : work.spend(of.items().size());
  auto non_null = [](const Value* v) { return v && !v->is(Kind::none) ? v : nullptr; };
  const int64_t by = whole_of(non_null(step), "a slice", 1);
  require(by != 0, ErrorCode::usage, "a slice with steps of 0");
  auto bound = [&](const Value* v, int64_t missing) {
    if (!non_null(v)) return missing;
    int64_t at = whole_of(v, "a slice", 0);
    if (at < 0) at = std::max<int64_t>(at, -size - 1) + size;
    return std::clamp<int64_t>(at, by < 0 ? -1 : 0, by < 0 ? size - 1 : size);
  };
  const int64_t stride = std::clamp<int64_t>(by, -size - 1, size + 1);
  const int64_t begin = bound(from, by < 0 ? size - 1 : 0), end = bound(to, by < 0 ? -1 : size);
  if (of.is(Kind::text)) return every(of.text(), begin, end, stride);
  std::vector<Value> items;
  for (int64_t i = begin; by > 0 ? i < end : i > end; i += stride) {
    base::check_stop();
    items.push_back(of.items()[static_cast<size_t>(i)]);
  }
  return Value(ValueList{std::move(items), of.is_tuple()});
}

std::vector<Value> walked(const Value& of, Work& work) {
  std::vector<Value> items;
  switch (of.kind()) {
    case Kind::undefined: return items;
    case Kind::list: work.spend(of.items().size()); return of.items();
    case Kind::dict:
      work.spend(of.dict().size());
      for (const auto& item : of.dict().items()) items.emplace_back(item.first);
      return items;
    case Kind::text:
      work.spend(of.text().size());
      items.reserve(static_cast<size_t>(character_count(of.text())));
      for (size_t at = 0; at < of.text().size();) items.push_back(character_at(of.text(), at));
      return items;
    default:
      fail(ErrorCode::usage, "a value of kind {} is walked over; expected a list", kind_name(of));
  }
}

Value call_method(const Value::Callable& method, const Arguments& arguments, Work& work) {
  arguments.spend(work);
  const Value& self = method.self;
  if (self.is(Kind::text)) return text_method(self.text(), method.name, arguments, work);
  if (self.is(Kind::dict)) return dict_method(self, method.name, arguments, work);
  if (self.is(Kind::list)) return list_method(self, method.name, arguments, work);
  // loop.cycle: `self` is the index of the iteration
  require(!arguments.places.empty(), ErrorCode::usage, "'cycle' needs an argument");
  return arguments.places[static_cast<size_t>(self.whole()) % arguments.places.size()];
}

}  // namespace tessera::jinja
