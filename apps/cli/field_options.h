#pragma once

#include <memory>
#include <string>
#include <vector>

#include "arguments.h"
#include "server/option_names.h"
#include "tessera/request_fields.h"

namespace tessera::cli {

/// Reads "999,750,500". Throws Error(usage) naming the option.
std::vector<double> numbers_of(const std::string& text, const std::string& option);

/// Adds an option for a field of a request's table; `value` outlives the parsing.
template <class Value>
CLI::Option* add_field(CLI::App& app, const Field& field, Value& value) {
  const std::string name = server::option_of(field.name);
  const auto read = [&](const auto& take) {
    return app.add_option_function<std::string>(name, take, field.help);
  };
  if constexpr (std::same_as<Value, bool>)
    if (!*field.value) return app.add_flag(name, value, field.help);
  if constexpr (std::same_as<Value, bool> || std::same_as<Value, std::optional<bool>>) {
    return read([&value](const std::string& word) { value = word == "on"; })
        ->check(one_of({"on", "off"}));
  } else if constexpr (WordValue<Value>) {
    CLI::Option* const option = read([&value, name](const std::string& word) {
      if (!word.empty()) read_word(word, name.c_str(), value);  // empty: refused after parsing
    });
    if constexpr (std::is_enum_v<Value> && !std::same_as<Value, SchedulerName>)
      option->check(one_of(words_of<Value>()));
    return option;
  } else if constexpr (std::same_as<Value, std::vector<double>>) {
    return read([&value, name](const std::string& text) { value = numbers_of(text, name); });
  } else if constexpr (std::same_as<Value, uint64_t>) {
    return app.add_option(name, value, field.help)->check(seed());
  } else {
    CLI::Option* const option = app.add_option(name, value, field.help);
    if constexpr (std::is_same_v<Value, int> || std::is_same_v<Value, int64_t> ||
                  std::is_same_v<Value, std::optional<int>>)
      option->check(whole(static_cast<int64_t>(field.least), static_cast<int64_t>(field.most)));
    return option;
  }
}

/// Adds the options of a request's fields for which `filter(field)` is true, under `group`, or
/// under the field's own heading if that is null.
template <class Request, std::predicate<const Field&> Filter>
void add_fields(CLI::App& app, Request& request, const char* group, const Filter& filter) {
  visit_fields(request, [&](const Field& field, auto& value) {
    if (!filter(field)) return;
    CLI::Option* const option = add_field(app, field, value);
    option->group(group ? group : field.group);
    if (*field.value) option->type_name(field.value);
  });
}

/// Adds the options of the fields under one heading of the table.
template <class Request>
void add_fields(CLI::App& app, Request& request, const std::string& heading,
                const char* group = nullptr) {
  add_fields(app, request, group, [&](const Field& field) { return heading == field.group; });
}

}  // namespace tessera::cli
