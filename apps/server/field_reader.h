#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "server/field_names.h"
#include "server/fields.h"
#include "server/refusal.h"
#include "tessera/request_fields.h"

namespace tessera::server {

/// Reads the fields of a request's table (visit_fields) from a body. Throws Refusal(400).
class FieldReader {
 public:
  /// `limits`: the most that this server takes of a number, or the longest list.
  FieldReader(Fields& fields, std::map<std::string, double> limits)
      : fields_(fields), limits_(std::move(limits)) {}

  template <class Value>
  void operator()(const Field& field, Value& value) {
    if (field.served) read(field, value);
  }

 private:
  double most(const Field& field) const {
    const auto limit = limits_.find(field.name);
    return limit == limits_.end() ? field.most : std::min(field.most, limit->second);
  }
  bool read(const Field& field, bool& value) { return fields_.flag(field.name, value); }
  bool read(const Field& field, uint64_t& value) { return fields_.seed(field.name, value); }
  bool read(const Field& field, std::string& value) { return fields_.text(field.name, value); }
  template <class Number>
  requires std::is_floating_point_v<Number>
  bool read(const Field& field, Number& value) {
    double number = value;
    const bool is_given = fields_.number(field.name, field.least, most(field), number);
    if (is_given) value = static_cast<Number>(number);
    return is_given;
  }
  template <class Number>
  requires std::is_same_v<Number, int> || std::is_same_v<Number, int64_t>
  bool read(const Field& field, Number& value) {
    int64_t whole = value;
    const bool is_given = fields_.whole(field.name, static_cast<int64_t>(field.least),
                                        static_cast<int64_t>(most(field)), whole);
    value = static_cast<Number>(whole);
    return is_given;
  }
  template <WordValue Value>
  bool read(const Field& field, Value& value) {
    std::string word;
    if (!fields_.text(field.name, word)) return false;
    try {
      read_word(word, field.name, value);
    } catch (const Error& e) {
      throw wrong(field.name, in_fields(e.what()));
    }
    return true;
  }
  template <class Value>
  requires(!WordValue<std::optional<Value>>) bool read(const Field& field,
                                                       std::optional<Value>& value) {
    Value inner{};
    const bool is_given = read(field, inner);
    if (is_given) value = inner;
    return is_given;
  }
  bool read(const Field& field, std::vector<double>& values) {
    const Json* const list = fields_.take_list(field.name);
    if (!list) return false;
    const double longest = limits_.at(field.name);
    const bool fits = list->is_array() && double(list->size()) <= longest &&
                      std::ranges::all_of(*list, [](const Json& item) { return item.is_number(); });
    if (!fits)
      throw wrong(field.name, std::string(field.name) + ": expected a list of " +
                                  std::to_string(int64_t(longest)) + " numbers at most");
    for (const Json& item : *list) values.push_back(item.get<double>());
    return true;
  }

  Fields& fields_;
  std::map<std::string, double> limits_;
};

}  // namespace tessera::server
