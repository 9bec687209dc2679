#include "jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "base/fail.h"
#include "base/find_text.h"
#include "base/printable.h"
#include "base/stop.h"
#include "jinja/text.h"
#include "tokenizer/unicode.h"

namespace tessera::jinja {
using tokenizer::check_length;
using tokenizer::in_lower_case;

namespace {

using Kind = Value::Kind;

// Text of a value of any kind, as most filters accept.
std::string soft(const Value& v, Work& work) {
  work.spend(v.weight());
  return shown(v);
}

// A path a.b.c or 0 to an item's part, for map, selectattr, sort and others; null: the item itself.
class Path {
 public:
  Path(const Value* attributes, Work& work) : work_(work) {
    if (!attributes) return;
    work.spend(attributes->weight());
    if (!attributes->is(Kind::text)) {
      steps_.push_back(*attributes);
      return;
    }
    for (const std::string& name : split(attributes->text(), ".", -1, false)) {
      const bool number = !name.empty() && name.size() < 9 && all_of_kind(name, "isdigit");
      steps_.push_back(number ? Value(std::stoi(name)) : Value(name));
    }
  }
  Value operator()(Value of) const {
    for (const Value& step : steps_) of = element(of, step, work_);
    return of;
  }

 private:
  Work& work_;
  std::vector<Value> steps_;
};

Value folded(const Value& v, bool case_sensitive) {
  return v.is(Kind::text) && !case_sensitive ? Value(in_lower_case(v.text())) : v;
}

// Arguments from position `from` on.
Arguments rest(const Arguments& arguments, size_t from) {
  Arguments rest;
  for (size_t i = from; i < arguments.places.size(); ++i)
    rest.places.push_back(arguments.places[i]);
  rest.names = arguments.names;
  return rest;
}

Value map_filter(const Value& of, const Arguments& arguments, Work& work) {
  std::vector<Value> out;
  const Value *by = nullptr, *missing = nullptr;
  for (const auto& [name, value] : arguments.names) {
    if (name == "attribute") by = &value;
    if (name == "default") missing = &value;
  }
  std::string filter;
  if (!by) {
    require(!arguments.places.empty(), ErrorCode::usage, "'map' needs a filter or an attribute");
    filter = text_of(&arguments.places[0], "map");
    require(is_filter(filter), ErrorCode::model, "the filter {} is not supported in chat templates",
            base::printable(filter));
  }
  const Path path(by, work);
  const Arguments rest_arguments = rest(arguments, 1);
  for (const Value& item : walked(of, work)) {
    Value value = by ? path(item) : filtered(filter, item, rest_arguments, work);
    if (value.is(Kind::undefined) && missing) value = *missing;
    out.push_back(std::move(value));
  }
  return Value::list(std::move(out));
}

// Implements select, reject, selectattr, rejectattr.
Value select_filter(const std::string& name, const Value& of, const Arguments& arguments,
                    Work& work) {
  const bool by_attribute = name.ends_with("attr"), selects = name.starts_with("select");
  const size_t first = by_attribute ? 1 : 0;
  require(arguments.places.size() >= first, ErrorCode::usage, "'{}' needs an attribute", name);
  std::string test;
  if (arguments.places.size() > first) {
    test = text_of(&arguments.places[first], name);
    require(is_test(test), ErrorCode::model, "the test {} is not supported in chat templates",
            base::printable(test));
  }
  std::vector<Value> out;
  const Path path(by_attribute ? &arguments.places[0] : nullptr, work);
  const Arguments rest_arguments = rest(arguments, first + 1);
  for (const Value& item : walked(of, work)) {
    const Value value = path(item);
    const bool holds = test.empty() ? truth(value) : tested(test, value, rest_arguments, work);
    if (holds == selects) out.push_back(item);
  }
  return Value::list(std::move(out));
}

Value sort_filter(const Value& of, const Arguments& arguments, Work& work) {
  const auto values = arguments.bind("sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<std::pair<Value, Value>> pairs;
  size_t weight = 0;
  const Path path(values[2], work);
  for (const Value& item : walked(of, work)) {
    const Value key = path(item);
    work.spend(key.weight());
    weight += key.weight();
    pairs.emplace_back(folded(key, values[1] && truth(*values[1])), item);
  }
  for (size_t n = pairs.size(); n > 0; n /= 2) work.spend(weight);
  const bool down = values[0] && truth(*values[0]);
  std::stable_sort(pairs.begin(), pairs.end(), [&](const auto& a, const auto& b) {
    base::check_stop();
    return down ? less(b.first, a.first) : less(a.first, b.first);
  });
  std::vector<Value> out;
  for (auto& [key, item] : pairs) out.push_back(std::move(item));
  return Value::list(std::move(out));
}

Value dictsort_filter(const Value& of, const Arguments& arguments, Work& work) {
  const auto values = arguments.bind("dictsort", {"case_sensitive", "by", "reverse"});
  require(of.is(Kind::dict), ErrorCode::usage, "'dictsort' of a value of kind {}", kind_name(of));
  const std::string by = text_of(values[1], "dictsort", "key");
  require(by == "key" || by == "value", ErrorCode::usage, "'dictsort' by {}", base::printable(by));
  std::vector<Value> items;
  for (const auto& [key, value] : of.dict().items()) items.push_back(Value::tuple({key, value}));
  Arguments how;
  how.names = {{"attribute", by == "key" ? 0 : 1}};
  if (values[0]) how.names.emplace_back("case_sensitive", *values[0]);
  if (values[2]) how.names.emplace_back("reverse", *values[2]);
  return sort_filter(Value::list(std::move(items)), how, work);
}

Value unique_filter(const Value& of, const Arguments& arguments, Work& work) {
  const auto values = arguments.bind("unique", {"case_sensitive", "attribute"});
  std::vector<Value> out, keys;
  const Path path(values[1], work);
  for (const Value& item : walked(of, work)) {
    const Value whole = path(item);
    work.spend(whole.weight());
    Value key = folded(whole, values[0] && truth(*values[0]));
    const auto same = [&](const Value& other) {
      work.spend(std::min(other.weight(), key.weight()));
      return equal(other, key);
    };
    if (std::any_of(keys.begin(), keys.end(), same)) continue;
    keys.push_back(std::move(key));
    out.push_back(item);
  }
  return Value::list(std::move(out));
}

// Implements min, max, sum.
Value fold_filter(const std::string& name, const Value& of, const Arguments& arguments,
                  Work& work) {
  const auto values = name == "sum" ? arguments.bind(name, {"attribute", "start"})
                                    : arguments.bind(name, {"case_sensitive", "attribute"});
  const Value* by = values[name == "sum" ? 0 : 1];
  std::vector<Value> items = walked(of, work);
  const Path path(by, work);
  if (name != "sum") {
    const bool exact = values[0] && truth(*values[0]);
    const Value* best = nullptr;
    Value of_best;
    for (const Value& item : items) {
      const Value whole = path(item);
      work.spend(2 * whole.weight());  // cost of case folding and of comparing
      Value key = folded(whole, exact);
      if (best && !(name == "min" ? less(key, of_best) : less(of_best, key))) continue;
      best = &item;
      of_best = std::move(key);
    }
    return best ? *best : Value::undefined("the list is empty");
  }
  double sum = values[1] ? values[1]->is_number() ? values[1]->number() : 0 : 0;
  int64_t whole = values[1] && values[1]->is_whole() ? values[1]->whole() : 0;
  bool all_whole = !values[1] || values[1]->is_whole();
  for (const Value& item : items) {
    const Value value = path(item);
    require(value.is_number(), ErrorCode::usage, "'sum' of a value of kind {}", kind_name(value));
    all_whole &= value.is_whole();
    sum += value.number();
    if (all_whole)
      require(!__builtin_add_overflow(whole, value.whole(), &whole), ErrorCode::usage,
              "a number is out of range");
  }
  return all_whole ? Value(whole) : Value(sum);
}

Value join_filter(const Value& of, const Arguments& arguments, Work& work) {
  const auto values = arguments.bind("join", {"d", "attribute"});
  const std::string separator = values[0] ? soft(*values[0], work) : "";
  std::string out;
  bool first = true;
  const Path path(values[1], work);
  for (const Value& item : walked(of, work)) {
    const std::string text = soft(path(item), work);
    work.text(text.size() + separator.size());
    out += (first ? "" : separator) + text;
    check_length(out.size());
    first = false;
  }
  return out;
}

Value tojson_filter(const Value& of, const Arguments& arguments, Work& work) {
  const auto values =
      arguments.bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = values[0] && truth(*values[0]);
  style.sorted = values[3] && truth(*values[3]);
  if (values[1] && !values[1]->is(Kind::none)) {
    style.indent = static_cast<int>(std::clamp<int64_t>(whole_of(values[1], "tojson", 0), 0, 100));
    style.item = ",";
  }
  if (values[2] && !values[2]->is(Kind::none)) {
    require(values[2]->is(Kind::list) && values[2]->items().size() == 2, ErrorCode::usage,
            "'tojson' with separators that are no pair");
    for (const Value& separator : values[2]->items()) work.spend(separator.weight());
    style.item = text_of(&values[2]->items()[0], "tojson");
    style.colon = text_of(&values[2]->items()[1], "tojson");
  }
  work.spend(of.weight());
  std::string out = to_json(of, style);
  work.text(out.size());
  return out;
}

Value indent_filter(const Value& of, const Arguments& arguments, Work& work) {
  const auto values = arguments.bind("indent", {"width", "first", "blank"});
  const std::string pad =
      values[0] && values[0]->is(Kind::text)
          ? values[0]->text()
          : std::string(
                static_cast<size_t>(std::clamp<int64_t>(whole_of(values[0], "indent", 4), 0, 1000)),
                ' ');
  const bool first = values[1] && truth(*values[1]), blank = values[2] && truth(*values[2]);
  const std::string text = soft(of, work) + "\n";
  std::string out;
  const std::vector<std::string> lines = lines_of(text, false);
  for (size_t i = 0; i < lines.size(); ++i) {
    work.text(lines[i].size() + pad.size());
    const bool padded = i == 0 ? first : blank || !lines[i].empty();
    out += (i == 0 ? "" : "\n") + (padded ? pad : "") + lines[i];
    check_length(out.size());
  }
  return out;
}

Value number_filter(const std::string& name, const Value& of, const Arguments& arguments,
                    Work& work) {
  if (name == "abs") {
    arguments.bind(name, {});
    require(of.is_number(), ErrorCode::usage, "'abs' of a value of kind {}", kind_name(of));
    if (!of.is_whole()) return std::fabs(of.number());
    require(of.whole() != std::numeric_limits<int64_t>::min(), ErrorCode::usage,
            "a number is out of range");
    return std::abs(of.whole());
  }
  if (name == "round") {
    const auto values = arguments.bind(name, {"precision", "method"});
    require(of.is_number(), ErrorCode::usage, "'round' of a value of kind {}", kind_name(of));
    const auto places =
        static_cast<int>(std::clamp<int64_t>(whole_of(values[0], name, 0), -300, 300));
    const std::string how = text_of(values[1], name, "common");
    const double scale = std::pow(10.0, places), x = of.number();
    if (how == "ceil") return std::ceil(x * scale) / scale;
    if (how == "floor") return std::floor(x * scale) / scale;
    require(how == "common", ErrorCode::usage, "'round' by {}", base::printable(how));
    if (places == 0) return std::nearbyint(x);
    const std::string digits = fmt::format("{:.{}f}", x, std::max(places, 0));
    return places > 0 ? std::stod(digits) : std::nearbyint(x * scale) / scale;
  }
  // int, float: invalid text gives the default
  const auto values =
      name == "int" ? arguments.bind(name, {"default", "base"}) : arguments.bind(name, {"default"});
  Value missing = values[0] ? *values[0] : name == "int" ? Value(0) : Value(0.0);
  if (of.is_number()) {
    if (name == "float") return of.number();
    if (of.is_whole()) return of.whole();
    return std::fabs(of.number()) < 9e18 ? Value(static_cast<int64_t>(of.number())) : missing;
  }
  if (!of.is(Kind::text)) return missing;
  require(name == "float" || whole_of(values[1], name, 10) == 10, ErrorCode::model,
          "'int' of another base than ten is not supported in chat templates");
  work.text(of.text().size());
  std::string_view text = trimmed(of.text(), true, true);
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t whole = 0;
  double real = 0;
  const char *const begin = text.data(), *const end = begin + text.size();
  const auto as_whole = std::from_chars(begin, end, whole);
  const auto as_real = std::from_chars(begin, end, real);
  if (name == "int" && as_whole.ec == std::errc() && as_whole.ptr == end) return whole;
  if (as_real.ec != std::errc() || as_real.ptr != end) return missing;
  if (name == "float") return real;
  return std::fabs(real) < 9e18 ? Value(static_cast<int64_t>(real)) : missing;
}

Value list_filter(const std::string& name, const Value& of, const Arguments& arguments,
                  Work& work) {
  arguments.bind(name, {});
  if (name == "length" || name == "count") {
    if (of.is(Kind::undefined)) return 0;
    if (of.is(Kind::text)) {
      work.text(of.text().size());
      return character_count(of.text());
    }
    if (of.is(Kind::dict)) return static_cast<int64_t>(of.dict().size());
    require(of.is(Kind::list), ErrorCode::usage, "'{}' of a value of kind {}", name, kind_name(of));
    return static_cast<int64_t>(of.items().size());
  }
  if (name == "items") {
    require(of.is(Kind::dict) || of.is(Kind::undefined), ErrorCode::usage,
            "'items' of a value of kind {}", kind_name(of));
    if (of.is(Kind::undefined)) return Value::list({});
    return call_method({"items", of, nullptr}, {}, work);
  }
  std::vector<Value> items = walked(of, work);
  if (name == "list") return Value::list(std::move(items));
  if (name == "reverse") {
    std::reverse(items.begin(), items.end());
    if (!of.is(Kind::text)) return Value::list(std::move(items));
    std::string text;
    for (const Value& item : items) {
      base::check_stop();
      text += item.text();
    }
    return text;
  }
  if (items.empty()) return Value::undefined("the list is empty");
  return name == "first" ? items.front() : items.back();
}

Value text_filter(const std::string& name, const Value& of, const Arguments& arguments,
                  Work& work) {
  Value text = soft(of, work);
  if (name == "string" || name == "safe") {
    arguments.bind(name, {});
    return text;
  }
  const std::string method = name == "trim" ? "strip" : name == "wordcount" ? "split" : name;
  if (name == "wordcount")
    return static_cast<int64_t>(
        call_method({method, text, nullptr}, arguments, work).items().size());
  if (name == "replace") {
    const auto values = arguments.bind(name, {"old", "new", "count"}, 2);
    Arguments texts{{soft(*values[0], work), soft(*values[1], work)}, {}};
    if (values[2] && !values[2]->is(Kind::none)) texts.places.push_back(*values[2]);
    return call_method({method, text, nullptr}, texts, work);
  }
  return call_method({method, text, nullptr}, arguments, work);
}

enum class Family { text, list, number, select, fold, other };

const std::map<std::string, Family>& families() {
  static const std::map<std::string, Family> kFamilies = [] {
    std::map<std::string, Family> all;
    for (const char* name : {"capitalize", "lower", "replace", "safe", "string", "title", "trim",
                             "upper", "wordcount"})
      all[name] = Family::text;
    for (const char* name : {"count", "first", "items", "last", "length", "list", "reverse"})
      all[name] = Family::list;
    for (const char* name : {"abs", "float", "int", "round"}) all[name] = Family::number;
    for (const char* name : {"reject", "rejectattr", "select", "selectattr"})
      all[name] = Family::select;
    for (const char* name : {"max", "min", "sum"}) all[name] = Family::fold;
    for (const char* name :
         {"d", "default", "dictsort", "indent", "join", "map", "sort", "tojson", "unique"})
      all[name] = Family::other;
    return all;
  }();
  return kFamilies;
}

bool contained(const Value& part, const Value& whole, Work& work) {
  work.spend(whole.weight());
  switch (whole.kind()) {
    case Kind::text:
      work.spend(part.weight());
      return base::find_text(whole.text(), text_of(&part, "in")) != std::string::npos;
    case Kind::dict:
      work.spend(part.weight());
      return part.is(Kind::text) && whole.dict().find(part.text());
    case Kind::undefined: return false;
    case Kind::list:
      return std::any_of(whole.items().begin(), whole.items().end(),
                         [&](const Value& item) { return equal(item, part); });
    default:
      fail(ErrorCode::usage, "'in' a value of kind {}; expected text or a list", kind_name(whole));
  }
}

bool compared(const std::string& name, const Value& a, const Value& b, Work& work) {
  work.spend(std::min(a.weight(), b.weight()));
  if (name == "eq") return equal(a, b);
  if (name == "ne") return !equal(a, b);
  if (name == "lt") return less(a, b);
  if (name == "gt") return less(b, a);
  if (name == "le") return less(a, b) || equal(a, b);
  return less(b, a) || equal(a, b);
}

const std::map<std::string, std::string>& comparisons() {
  static const std::map<std::string, std::string> kNames = {
      {"==", "eq"}, {"eq", "eq"}, {"equalto", "eq"},     {"!=", "ne"}, {"ne", "ne"},
      {"<", "lt"},  {"lt", "lt"}, {"lessthan", "lt"},    {"<=", "le"}, {"le", "le"},
      {">", "gt"},  {"gt", "gt"}, {"greaterthan", "gt"}, {">=", "ge"}, {"ge", "ge"}};
  return kNames;
}

using Check = bool (*)(const Value&);
const std::map<std::string, Check>& checks() {
  static const std::map<std::string, Check> kChecks = {
      {"defined", [](const Value& v) { return !v.is(Kind::undefined); }},
      {"undefined", [](const Value& v) { return v.is(Kind::undefined); }},
      {"none", [](const Value& v) { return v.is(Kind::none); }},
      {"string", [](const Value& v) { return v.is(Kind::text); }},
      {"mapping", [](const Value& v) { return v.is(Kind::dict); }},
      {"boolean", [](const Value& v) { return v.is(Kind::boolean); }},
      {"number", [](const Value& v) { return v.is_number(); }},
      {"integer", [](const Value& v) { return v.is(Kind::integer); }},
      {"float", [](const Value& v) { return v.is(Kind::real); }},
      {"true", [](const Value& v) { return v.is(Kind::boolean) && v.boolean(); }},
      {"false", [](const Value& v) { return v.is(Kind::boolean) && !v.boolean(); }},
      {"callable", [](const Value& v) { return v.is(Kind::callable); }},
      {"lower", [](const Value& v) { return all_of_kind(shown(v), "islower"); }},
      {"upper", [](const Value& v) { return all_of_kind(shown(v), "isupper"); }},
      {"iterable",
       [](const Value& v) {
         return v.is(Kind::list) || v.is(Kind::text) || v.is(Kind::dict) || v.is(Kind::undefined);
       }},
      {"sequence", [](const Value& v) {
         return v.is(Kind::list) || v.is(Kind::text) || v.is(Kind::dict) || v.is(Kind::undefined);
       }}};
  return kChecks;
}

}  // namespace

bool is_filter(const std::string& name) { return families().count(name) > 0; }

bool is_test(const std::string& name) {
  return checks().count(name) > 0 || comparisons().count(name) > 0 || name == "in" ||
         name == "odd" || name == "even" || name == "divisibleby" || name == "sameas";
}

Value filtered(const std::string& name, const Value& of, const Arguments& arguments, Work& work) {
  work.spend(1);
  arguments.spend(work);
  switch (families().at(name)) {
    case Family::text: return text_filter(name, of, arguments, work);
    case Family::list: return list_filter(name, of, arguments, work);
    case Family::number: return number_filter(name, of, arguments, work);
    case Family::select: return select_filter(name, of, arguments, work);
    case Family::fold: return fold_filter(name, of, arguments, work);
    case Family::other: break;
  }
  if (name == "dictsort") return dictsort_filter(of, arguments, work);
  if (name == "indent") return indent_filter(of, arguments, work);
  if (name == "join") return join_filter(of, arguments, work);
  if (name == "map") return map_filter(of, arguments, work);
  if (name == "sort") return sort_filter(of, arguments, work);
  if (name == "tojson") return tojson_filter(of, arguments, work);
  if (name == "unique") return unique_filter(of, arguments, work);
  const auto values = arguments.bind(name, {"default_value", "boolean"});
  const bool missing = of.is(Kind::undefined) || (values[1] && truth(*values[1]) && !truth(of));
  return !missing ? of : values[0] ? *values[0] : Value("");
}

bool tested(const std::string& name, const Value& of, const Arguments& arguments, Work& work) {
  work.spend(1);
  arguments.spend(work);
  if (const auto check = checks().find(name); check != checks().end()) {
    arguments.bind(name, {});
    if (name == "lower" || name == "upper") work.spend(of.weight());
    return check->second(of);
  }
  if (const auto how = comparisons().find(name); how != comparisons().end())
    return compared(how->second, of, *arguments.bind(name, {"other"}, 1)[0], work);
  if (name == "in") return contained(of, *arguments.bind(name, {"seq"}, 1)[0], work);
  if (name == "sameas") {
    const Value& other = *arguments.bind(name, {"other"}, 1)[0];
    return of.kind() == other.kind() && compared("eq", of, other, work);
  }
  require(of.is_whole(), ErrorCode::usage, "'{}' of a value of kind {}", name, kind_name(of));
  if (name == "odd" || name == "even") {
    arguments.bind(name, {});
    return (of.whole() % 2 != 0) == (name == "odd");
  }
  const int64_t by = whole_of(arguments.bind(name, {"num"}, 1)[0], name, 1);
  require(by != 0, ErrorCode::usage, "'divisibleby' of 0");
  return by == -1 || of.whole() % by == 0;
}

}  // namespace tessera::jinja
