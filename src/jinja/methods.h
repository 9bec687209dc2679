#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "jinja/value.h"

namespace tessera::jinja {

/// What a call gives: values by place, then by name.
struct Arguments {
  std::vector<Value> places;
  std::vector<std::pair<std::string, Value>> names;
  /// Pays for one walk through each text.
  void spend(Work& work) const;
  /// The values in the order of these parameters, null where none was given. Throws Error(usage)
  /// naming `of` for too many, an unknown name, or fewer than `least`.
  std::vector<const Value*> bind(const std::string& of,
                                 std::initializer_list<const char*> parameters,
                                 size_t least = 0) const;
};

/// An argument as what it must be. Throws Error(usage) naming `of` for another kind; null:
/// `missing`.
std::string text_of(const Value* argument, const std::string& of, const std::string& missing = "");
int64_t whole_of(const Value* argument, const std::string& of, int64_t missing);

/// What stands behind a dot: a method, else the item of a dict, else undefined. Throws Error(usage)
/// for what is undefined itself, Error(model) for a method of Python's that is not there.
Value attribute(const Value& of, const std::string& name);
/// What stands in brackets: an item, else what stands behind a dot, else undefined.
Value element(const Value& of, const Value& key, Work& work);
/// of[from:to:step]; null or None: an open end. Throws Error(usage) for what is no text or list.
Value slice(const Value& of, const Value* from, const Value* to, const Value* step, Work& work);
/// What a loop walks over: items, keys of a dict, characters. Throws Error(usage) for other kinds.
std::vector<Value> walked(const Value& of, Work& work);
/// Calls a method that attribute() gave.
Value call_method(const Value::Callable& method, const Arguments& arguments, Work& work);

}  // namespace tessera::jinja
