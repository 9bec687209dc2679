#include "load/gguf_keys.h"

#include <algorithm>
#include <utility>

#include "base/config_reader.h"
#include "base/fail.h"
#include "base/input_file.h"
#include "base/member.h"
#include "base/printable.h"
#include "load/gguf_header.h"

namespace tessera::load {
namespace {

constexpr const char* kGiveFolder =
    "give the model's folder, which may lack the weights, and this file as `transformer`";

base::Json keys_of(const std::string& path) {
  const base::InputFile file(path);
  return parse_gguf_metadata([&](int64_t at, void* to, int64_t bytes) { file.read(at, to, bytes); },
                             file.size(), path);
}

}  // namespace

GgufKeys::GgufKeys(const std::string& path) : path_(path), values_(keys_of(path)) {
  const base::Json& name = base::member(values_, kArchitecture);
  if (name.is_string()) architecture_ = name.get<std::string>();
}

std::string GgufKeys::full(const std::string& key) const {
  return key.starts_with('.') ? architecture_ + key : key;
}

const base::Json& GgufKeys::find(const std::string& key) const {
  const std::string name = full(key);
  read_.insert(name);
  return base::member(values_, name.c_str());
}

const base::Json& GgufKeys::at(const std::string& key) const {
  const base::Json& value = find(key);
  require(!value.is_null(), ErrorCode::model, "{}: the metadata lack {}; {}", path_,
          base::printable(full(key)), kGiveFolder);
  return value;
}

int64_t GgufKeys::whole(const std::string& key) const {
  const base::Json& value = at(key);
  const bool fits = value.is_number_integer() && value >= 0 && value <= int64_t{1} << 31;
  if (!fits) refuse(key, "a whole number");
  return value.get<int64_t>();
}

void GgufKeys::expect(const std::string& key, const std::vector<base::Json>& values) const {
  const base::Json& value = find(key);
  if (value.is_null() || std::find(values.begin(), values.end(), value) != values.end()) return;
  refuse(key, values.front().dump());
}

void GgufKeys::refuse(const std::string& key, const std::string& expected) const {
  fail(ErrorCode::model, "{}: {} is {}; expected {}: {}", path_, base::printable(full(key)),
       base::ConfigReader::shown(find(key)), expected, kGiveFolder);
}

void GgufKeys::refuse_file(const std::string& what) const {
  fail(ErrorCode::model, "{}: {}; {}", path_, what, kGiveFolder);
}

void GgufKeys::check_rest() const {
  for (const auto& [name, value] : values_.items())
    require(!(name.starts_with(architecture_ + ".") || name.starts_with("diffusion.")) ||
                read_.contains(name),
            ErrorCode::model, "{}: the key {} is not known; {}", path_, base::printable(name),
            kGiveFolder);
}

}  // namespace tessera::load
