#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/seeded_hash.h"

namespace tessera::jinja {

struct Statement;
class Value;
class ValueDict;

/// Values in order; `tuple` only affects Python's spelling.
struct ValueList {
  std::vector<Value> items;
  bool tuple = false;
};

/// A value of a chat template with Python's semantics. Lists and dicts are immutable, so copies
/// share them. Only namespace() is mutable, and cannot be inside another value.
class Value {
 public:
  enum class Kind { undefined, none, boolean, integer, real, text, list, dict, space, callable };
  struct Callable;

  /// An undefined value; `reason` is the error on use.
  Value() = default;
  static Value undefined(std::string reason);
  Value(std::nullptr_t) : value_(nullptr) {}
  Value(std::same_as<bool> auto value) : value_(value) {}
  Value(std::integral auto value) requires(!std::same_as<decltype(value), bool>)
      : value_(static_cast<int64_t>(value)) {}
  Value(double value) : value_(value) {}
  Value(std::string text) : value_(std::make_shared<const std::string>(std::move(text))) {}
  Value(const char* text) : Value(std::string(text)) {}
  /// Throw Error(usage) for too deep nesting, or a nested namespace.
  Value(ValueList list);
  Value(ValueDict dict);
  static Value list(std::vector<Value> items) { return Value(ValueList{std::move(items)}); }
  static Value tuple(std::vector<Value> items) { return Value(ValueList{std::move(items), true}); }
  static Value space(ValueDict names);
  static Value callable(Callable callable);

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  /// True for integers and booleans.
  bool is_whole() const { return is(Kind::integer) || is(Kind::boolean); }
  bool is_number() const { return is_whole() || is(Kind::real); }

  /// Accessors; each requires the matching kind.
  const std::string& why() const;
  bool boolean() const { return std::get<bool>(value_); }
  int64_t whole() const;
  double number() const;
  const std::string& text() const { return *std::get<std::shared_ptr<const std::string>>(value_); }
  const std::vector<Value>& items() const;
  bool is_tuple() const;
  const ValueDict& dict() const;
  ValueDict& names() const { return *std::get<std::shared_ptr<ValueDict>>(value_); }
  const Callable& callable() const { return *std::get<std::shared_ptr<const Callable>>(value_); }

  /// Size for a full pass: number of values, and a unit for each sixteen bytes of text.
  size_t weight() const;

 private:
  struct Nested;
  struct Undefined {
    std::shared_ptr<const std::string> why;
  };
  struct ListHandle {
    std::shared_ptr<const Nested> nested;
  };
  struct DictHandle {
    std::shared_ptr<const Nested> nested;
  };
  static size_t depth_of(const Value& value);
  static void add(Nested& to, const Value& part);

  std::variant<Undefined, std::nullptr_t, bool, int64_t, double, std::shared_ptr<const std::string>,
               ListHandle, DictHandle, std::shared_ptr<ValueDict>, std::shared_ptr<const Callable>>
      value_;
};

/// Values by name, in order of insertion.
class ValueDict {
 public:
  /// An existing name keeps its position and gets the value.
  void set(const std::string& key, Value value);
  /// Null if missing.
  const Value* find(std::string_view key) const;
  const std::vector<std::pair<std::string, Value>>& items() const { return items_; }
  size_t size() const { return items_.size(); }

 private:
  std::vector<std::pair<std::string, Value>> items_;
  std::unordered_map<std::string, size_t, base::SeededHash, std::equal_to<>> at_;
};

/// A method of a value, a macro of the template, or a named function.
struct Value::Callable {
  std::string name;
  Value self;
  const Statement* macro = nullptr;
};

/// Remaining work of a template: bounded by the size of template and values.
struct Work {
  size_t left = 0;
  /// Throws Error(usage) if nothing is left.
  void spend(size_t units);
  /// Same for new text.
  void text(size_t bytes);
};

/// Jinja's truth: not undefined, None, False, zero or empty.
bool truth(const Value& value);
/// Python's ==.
bool equal(const Value& a, const Value& b);
/// Python's <. Throws Error(usage) for kinds without order.
bool less(const Value& a, const Value& b);
/// Output of {{ }}: Python's str().
std::string shown(const Value& value);
/// Python's name for the kind of a value.
std::string kind_name(const Value& value);

/// Format of json.dumps.
struct JsonStyle {
  int indent = -1;  ///< negative: a single line
  std::string item = ", ", colon = ": ";
  bool ascii = false, sorted = false;
};
/// Python's json.dumps. Throws Error(usage) for values without a JSON form.
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace tessera::jinja
