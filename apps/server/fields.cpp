#include "server/fields.h"

#include <algorithm>

#include "server/refusal.h"

namespace tessera::server {
namespace {

// As much of a number as a message needs.
std::string shown(double value) {
  std::string text = Json(value).dump();
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

[[noreturn]] void refuse(const std::string& name, const std::string& expected) {
  throw wrong(name, name + ": expected " + expected);
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
    refuse(path_of(name), "a number from " + shown(least) + " to " + shown(most));
  value = given;
  return true;
}

bool Fields::whole(const std::string& name, int64_t least, int64_t most, int64_t& value) {
  const Json* found = take(name);
  if (!found) return false;
  const bool small = found->is_number_integer() &&
                     (!found->is_number_unsigned() || found->get<uint64_t>() <= INT64_MAX);
  if (!small || found->get<int64_t>() < least || found->get<int64_t>() > most)
    refuse(path_of(name),
           "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
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
  const Json* found = take(name);
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
  if (found->empty()) refuse(path_of(name), std::string(expected) + " that is not empty");
  for (const Json& one : *found) add(one);
  return true;
}

void Fields::finish() const {
  for (const auto& [name, value] : object_.items())
    if (std::find(taken_.begin(), taken_.end(), name) == taken_.end())
      throw wrong(path_of(name.substr(0, 100)),
                  "'" + path_of(name.substr(0, 100)) + "' is no parameter of this request");
}

void check_text(size_t bytes, size_t most, const std::string& name) {
  if (bytes > most)
    throw wrong(name, name + ": " + std::to_string(bytes) + " bytes of text; a request has " +
                          std::to_string(most) + " at most");
}

}  // namespace tessera::server
