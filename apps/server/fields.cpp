#include "server/fields.h"

#include <algorithm>

#include "server/refusal.h"

namespace tessera::server {
namespace {

// Prints a number briefly for a message.
std::string number_text(const Json& value) {
  std::string text = value.dump();
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

[[noreturn]] void refuse(const std::string& name, const std::string& expected) {
  throw wrong(name, name + ": expected " + expected);
}

// Reports on which side of the range a number lies.
[[noreturn]] void refuse_number(const std::string& name, const Json& value, const Json& least,
                                const Json& most, const std::string& kind) {
  const std::string range = kind + number_text(least) + " to " + number_text(most);
  if (!value.is_number() || (value >= least && value <= most)) refuse(name, range);
  const bool above = value > most;
  throw wrong(name, name + ": " + number_text(value) + " is " + (above ? "above " : "below ") +
                        number_text(above ? most : least) + "; expected " + range);
}

}  // namespace

Fields::Fields(const Json& object, const std::string& name, bool inside)
    : object_(object), inside_(inside ? name + "." : "") {
  if (!object.is_object()) refuse(name, "an object, {...}");
}

const Json* Fields::take(const std::string& name) {
  used_names_.push_back(name);
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

const Json* Fields::take_list(const std::string& name) {
  const Json* field = take(name);
  return field && field->is_array() && field->empty() ? nullptr : field;
}

bool Fields::text(const std::string& name, std::string& value) {
  const Json* field = take(name);
  if (!field) return false;
  if (!field->is_string()) refuse(path_of(name), "a text");
  value = field->get<std::string>();
  if (value.find('\0') != std::string::npos)
    refuse(path_of(name), "a text without the character 0");
  return true;
}

bool Fields::flag(const std::string& name, bool& value) {
  const Json* field = take(name);
  if (!field) return false;
  if (!field->is_boolean()) refuse(path_of(name), "true or false");
  value = field->get<bool>();
  return true;
}

bool Fields::number(const std::string& name, double least, double most, double& value) {
  const Json* field = take(name);
  if (!field) return false;
  const double input = field->is_number() ? field->get<double>() : least - 1;
  if (!(input >= least && input <= most))
    refuse_number(path_of(name), *field, least, most, "a number from ");
  value = input;
  return true;
}

bool Fields::whole(const std::string& name, int64_t least, int64_t most, int64_t& value) {
  const Json* field = take(name);
  if (!field) return false;
  const bool small = field->is_number_integer() &&
                     (!field->is_number_unsigned() || field->get<uint64_t>() <= INT64_MAX);
  if (!small || field->get<int64_t>() < least || field->get<int64_t>() > most)
    refuse_number(path_of(name), *field, least, most, "a whole number from ");
  value = field->get<int64_t>();
  return true;
}

bool Fields::seed(const std::string& name, uint64_t& value) {
  const Json* field = take(name);
  if (!field) return false;
  if (!field->is_number_unsigned()) refuse(path_of(name), "a whole number from 0 to 2^64 - 1");
  value = field->get<uint64_t>();
  return true;
}

bool Fields::texts(const std::string& name, std::vector<std::string>& values, bool numbers) {
  const Json* field = take_list(name);
  if (!field) return false;
  const char* const expected =
      numbers ? "a list of names or whole numbers" : "a text, or a list of texts";
  const auto add = [&](const Json& item) {
    const bool number = numbers && item.is_number_unsigned();
    if (!number && !item.is_string()) refuse(path_of(name), expected);
    values.push_back(number ? item.dump() : item.get<std::string>());
    if (values.back().find('\0') != std::string::npos)
      refuse(path_of(name), "texts without the character 0");
  };
  if (!field->is_array()) {
    add(*field);
    return true;
  }
  for (const Json& item : *field) add(item);
  return true;
}

bool Fields::is_used(const std::string& name) const {
  return std::find(used_names_.begin(), used_names_.end(), name) != used_names_.end();
}

void Fields::only(const std::vector<Neutral>& neutrals) {
  for (const auto& [name, values] : neutrals) {
    const Json* field = take(name);
    if (field && std::ranges::find(values, without_nulls(*field)) == values.end())
      throw wrong(path_of(name), path_of(name) + ": Tessera does not do this; leave it out");
  }
}

void Fields::rest(Json& to, const std::vector<std::string>& hidden) {
  for (const auto& [name, value] : object_.items())
    if (!value.is_null() && !is_used(name) && std::ranges::find(hidden, name) == hidden.end()) {
      used_names_.push_back(name);
      to[name] = value;
    }
}

void Fields::finish() const {
  for (const auto& [name, value] : object_.items())
    if (!value.is_null() && !is_used(name))
      throw wrong(path_of(name.substr(0, 100)),
                  "'" + path_of(name.substr(0, 100)) + "' is no parameter of this request");
}

Json without_nulls(const Json& json) {
  if (!json.is_structured()) return json;
  Json result = json.is_array() ? Json::array() : Json::object();
  for (const auto& [name, value] : json.items())
    if (json.is_array())
      result.push_back(without_nulls(value));
    else if (!value.is_null())
      result[name] = without_nulls(value);
  return result;
}

void check_text(size_t bytes, size_t most, const std::string& name) {
  if (bytes > most)
    throw wrong(name, name + ": " + std::to_string(bytes) + " bytes of text; a request has " +
                          std::to_string(most) + " at most");
}

}  // namespace tessera::server
