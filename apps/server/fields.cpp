#include "server/fields.h"

#include <algorithm>

#include "server/refusal.h"

namespace tessera::server {
namespace {

// Prints a number briefly for a message.
std::string shown(const Json& value) {
  std::string text = value.dump();
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

[[noreturn]] void refuse(const std::string& name, const std::string& expected) {
  throw wrong(name, name + ": expected " + expected);
}

// Reports on which side of the range a number lies.
[[noreturn]] void refuse_number(const std::string& name, const Json& given, const Json& least,
                                const Json& most, const std::string& kind) {
  const std::string range = kind + shown(least) + " to " + shown(most);
  if (!given.is_number() || (given >= least && given <= most)) refuse(name, range);
  const bool above = given > most;
  throw wrong(name, name + ": " + shown(given) + " is " + (above ? "above " : "below ") +
                        shown(above ? most : least) + "; expected " + range);
}

}  // namespace

Fields::Fields(const Json& object, const std::string& what, bool inside)
    : object_(object), inside_(inside ? what + "." : "") {
  if (!object.is_object()) refuse(what, "an object, {...}");
}

const Json* Fields::take(const std::string& name) {
  taken_.push_back(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Json* Fields::take_list(const std::string& name) {
  const Json* found = take(name);
  return found && found->is_array() && found->empty() ? nullptr : found;
}

bool Fields::text(const std::string& name, std::string& value) {
  const Json* found = take(name);
  if (!found) return false;
  if (!found->is_string()) refuse(path_of(name), "a text");
  value = found->get<std::string>();
  if (value.find('\0') != std::string::npos)
    refuse(path_of(name), "a text without the character 0");
  return true;
}

bool Fields::flag(const std::string& name, bool& value) {
  const Json* found = take(name);
  if (!found) return false;
  if (!found->is_boolean()) refuse(path_of(name), "true or false");
  value = found->get<bool>();
  return true;
}

bool Fields::number(const std::string& name, double least, double most, double& value) {
  const Json* found = take(name);
  if (!found) return false;
  const double given = found->is_number() ? found->get<double>() : least - 1;
  if (!(given >= least && given <= most))
    refuse_number(path_of(name), *found, least, most, "a number from ");
  value = given;
  return true;
}

bool Fields::whole(const std::string& name, int64_t least, int64_t most, int64_t& value) {
  const Json* found = take(name);
  if (!found) return false;
  const bool small = found->is_number_integer() &&
                     (!found->is_number_unsigned() || found->get<uint64_t>() <= INT64_MAX);
  if (!small || found->get<int64_t>() < least || found->get<int64_t>() > most)
    refuse_number(path_of(name), *found, least, most, "a whole number from ");
  value = found->get<int64_t>();
  return true;
}

bool Fields::seed(const std::string& name, uint64_t& value) {
  const Json* found = take(name);
  if (!found) return false;
  if (!found->is_number_unsigned()) refuse(path_of(name), "a whole number from 0 to 2^64 - 1");
  value = found->get<uint64_t>();
  return true;
}

bool Fields::texts(const std::string& name, std::vector<std::string>& values, bool numbers) {
  const Json* found = take_list(name);
  if (!found) return false;
  const char* const expected =
      numbers ? "a list of names or whole numbers" : "a text, or a list of texts";
  const auto add = [&](const Json& one) {
    const bool number = numbers && one.is_number_unsigned();
    if (!number && !one.is_string()) refuse(path_of(name), expected);
    values.push_back(number ? one.dump() : one.get<std::string>());
    if (values.back().find('\0') != std::string::npos)
      refuse(path_of(name), "texts without the character 0");
  };
  if (!found->is_array()) {
    add(*found);
    return true;
  }
  for (const Json& one : *found) add(one);
  return true;
}

bool Fields::taken(const std::string& name) const {
  return std::find(taken_.begin(), taken_.end(), name) != taken_.end();
}

void Fields::only(const std::vector<Neutral>& all) {
  for (const auto& [name, values] : all) {
    const Json* given = take(name);
    if (given && std::ranges::find(values, without_nulls(*given)) == values.end())
      throw wrong(path_of(name), path_of(name) + ": Tessera does not do this; leave it out");
  }
}

void Fields::rest(Json& to, const std::vector<std::string>& hidden) {
  for (const auto& [name, value] : object_.items())
    if (!value.is_null() && !taken(name) && std::ranges::find(hidden, name) == hidden.end()) {
      taken_.push_back(name);
      to[name] = value;
    }
}

void Fields::finish() const {
  for (const auto& [name, value] : object_.items())
    if (!value.is_null() && !taken(name))
      throw wrong(path_of(name.substr(0, 100)),
                  "'" + path_of(name.substr(0, 100)) + "' is no parameter of this request");
}

Json without_nulls(const Json& json) {
  if (!json.is_structured()) return json;
  Json kept = json.is_array() ? Json::array() : Json::object();
  for (const auto& [name, value] : json.items())
    if (json.is_array())
      kept.push_back(without_nulls(value));
    else if (!value.is_null())
      kept[name] = without_nulls(value);
  return kept;
}

void check_text(size_t bytes, size_t most, const std::string& name) {
  if (bytes > most)
    throw wrong(name, name + ": " + std::to_string(bytes) + " bytes of text; a request has " +
                          std::to_string(most) + " at most");
}

}  // namespace tessera::server
