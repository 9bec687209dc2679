#include "base/config_reader.h"

#include <utility>

#include "base/fail.h"

namespace tessera::base {
namespace {

constexpr int64_t kMost = int64_t{1} << 20;

bool whole(const Json& value, int64_t low, int64_t high) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX)) return false;
  return value.get<int64_t>() >= low && value.get<int64_t>() <= high;
}

constexpr size_t kLongestShown = 60;

// Appends the beginning of a value as JSON; a value may be a whole vocabulary, so the rest is cut.
void show(const Json& value, std::string& out) {
  if (value.is_string()) {  // four bytes more, so the last shown character is whole
    const auto& text = value.get_ref<const std::string&>();
    out +=
        Json(text.substr(0, kLongestShown + 4)).dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > kLongestShown + 4) out.pop_back();
    return;
  }
  if (value.is_primitive()) {
    out += value.dump();
    return;
  }
  out += value.is_array() ? '[' : '{';
  for (auto it = value.begin(); it != value.end() && out.size() < kLongestShown; ++it) {
    if (it != value.begin()) out += ',';
    if (value.is_object()) {
      show(Json(it.key().substr(0, kLongestShown + 4)), out);
      out += ':';
    }
    show(*it, out);
  }
  out += value.is_array() ? ']' : '}';
}

constexpr const char* kFraction = "a number above 0 and below 1";
bool is_fraction(double x) { return x > 0 && x < 1; }

}  // namespace

ConfigReader::ConfigReader(const Json& config, std::string where)
    : config_(config), where_(std::move(where)) {
  require(config.is_object(), ErrorCode::model, "{}: {}; expected an object", where_,
          shown(config));
}

std::string ConfigReader::Shown::str() const {
  std::string text;
  show(value, text);
  return text.substr(0, kLongestShown);
}

const Json* ConfigReader::find(const char* key) const {
  read_.insert(key);
  const auto it = config_.find(key);
  return it == config_.end() || it->is_null() ? nullptr : &*it;
}

bool ConfigReader::has(const char* key) const { return find(key) != nullptr; }

int64_t ConfigReader::integer(const char* key, int64_t missing, int64_t low, int64_t high) const {
  const Json* value = find(key);
  if (!value) return missing;
  require(whole(*value, low, high), ErrorCode::model,
          "{}: '{}' is {}; expected a whole number from {} to {}", where_, key, shown(*value), low,
          high);
  return value->get<int64_t>();
}

int64_t ConfigReader::size(const char* key, int64_t missing) const {
  return integer(key, missing, 1, kMost);
}

int64_t ConfigReader::size(const char* key) const {
  require(has(key), ErrorCode::model, "{}: '{}' is missing; expected a whole number", where_, key);
  return size(key, 1);
}

double ConfigReader::number(const char* key, double missing, double low, double high) const {
  const Json* value = find(key);
  if (!value) return missing;
  const bool fits =
      value->is_number() && value->get<double>() >= low && value->get<double>() <= high;
  require(fits, ErrorCode::model, "{}: '{}' is {}; expected a number from {} to {}", where_, key,
          shown(*value), low, high);
  return value->get<double>();
}

double ConfigReader::checked(const char* key, const Json& value, bool (*fits)(double),
                             const char* expected) const {
  require(value.is_number() && fits(value.get<double>()), ErrorCode::model,
          "{}: '{}' {} {}; expected {}", where_, key, &value == find(key) ? "is" : "holds",
          shown(value), expected);
  return value.get<double>();
}

double ConfigReader::positive(const char* key, double missing) const {
  const Json* value = find(key);
  if (!value) return missing;
  return checked(
      key, *value, [](double x) { return x > 0 && x <= 1e6; }, "a number above 0, up to 1e6");
}

double ConfigReader::fraction(const char* key, double missing) const {
  const Json* value = find(key);
  return value ? checked(key, *value, is_fraction, kFraction) : missing;
}

bool ConfigReader::flag(const char* key, bool missing) const {
  const Json* value = find(key);
  if (!value) return missing;
  require(value->is_boolean(), ErrorCode::model, "{}: '{}' is {}; expected true or false", where_,
          key, shown(*value));
  return value->get<bool>();
}

std::string ConfigReader::choice(const char* key, const char* missing,
                                 std::initializer_list<const char*> choices) const {
  const Json* value = find(key);
  if (!value) return missing;
  std::string names;
  for (const char* name : choices) {
    if (*value == name) return name;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  fail(ErrorCode::model, "{}: '{}' is {}, which is not supported; supported are: {}", where_, key,
       shown(*value), names);
}

std::vector<int64_t> ConfigReader::sizes(const char* key, std::vector<int64_t> missing) const {
  const Json* value = find(key);
  if (!value) return missing;
  require(value->is_array() && value->size() <= 4096, ErrorCode::model,
          "{}: '{}' is {}; expected a list of whole numbers", where_, key, shown(*value));
  std::vector<int64_t> result;
  for (const Json& item : *value) {
    require(whole(item, 0, kMost), ErrorCode::model, "{}: '{}' holds {}; expected a whole number",
            where_, key, shown(item));
    result.push_back(item.get<int64_t>());
  }
  return result;
}

std::vector<double> ConfigReader::fractions(const char* key) const {
  const Json* value = find(key);
  if (!value) return {};
  require(value->is_array(), ErrorCode::model, "{}: '{}' is {}; expected a list of numbers", where_,
          key, shown(*value));
  std::vector<double> result;
  for (const Json& item : *value) result.push_back(checked(key, item, is_fraction, kFraction));
  return result;
}

void ConfigReader::all(const char* key, const char* only) const {
  const Json* value = find(key);
  if (!value) return;
  require(value->is_array(), ErrorCode::model, "{}: '{}' is {}; expected a list", where_, key,
          shown(*value));
  for (const Json& item : *value)
    require(item == only, ErrorCode::model, "{}: '{}' holds {}, which is not supported; only {} is",
            where_, key, shown(item), only);
}

void ConfigReader::refuse(const char* key, const char* feature) const {
  require(!flag(key, false), ErrorCode::model, "{}: '{}' is true: {} is not supported", where_, key,
          feature);
}

}  // namespace tessera::base
