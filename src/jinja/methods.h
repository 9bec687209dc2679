#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace tessera::jinja {

/// Arguments of a call: positional values, then named values.
struct Arguments {
  std::vector<Value> places;
  std::vector<std::pair<std::string, Value>> names;
  /// Charges for a pass over each text.
  void spend(Work& work) const;
  /// Binds values to parameters in order, null if not given. Throws Error(usage) naming `of` for
  /// too many, an unknown name, or fewer than `least`.
  std::vector<const Value*> bind(const std::string& of,
                                 std::initializer_list<const char*> parameters,
                                 size_t least = 0) const;
};

/// An argument of a required kind. Throws Error(usage) naming `of` for another kind; null:
/// `missing`.
std::string text_of(const Value* argument, const std::string& of, const std::string& missing = "");
int64_t whole_of(const Value* argument, const std::string& of, int64_t missing);

/// Evaluates of.name: a method, else the item of a dict, else undefined. Throws Error(usage) if
/// `of` is undefined, Error(model) for an unsupported Python method.
Value attribute(const Value& of, const std::string& name);
/// Evaluates of[key]: an item, else the attribute, else undefined.
Value element(const Value& of, const Value& key, Work& work);
/// Slice of[from:to:step]; null or None: an open end. Throws Error(usage) unless `of` is a text or
/// list.
Value slice(const Value& of, const Value* from, const Value* to, const Value* step, Work& work);
/// Items of a loop: items of a list, keys of a dict, characters. Throws Error(usage) for other
/// kinds.
std::vector<Value> walked(const Value& of, Work& work);
/// Calls a method returned by attribute().
Value call_method(const Value::Callable& method, const Arguments& arguments, Work& work);

}  // namespace tessera::jinja
