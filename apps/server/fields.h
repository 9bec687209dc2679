#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/json.h"

namespace tessera::server {

/// A field of another API that Tessera ignores, with the neutral values accepted for this field.
struct Neutral {
  const char* name;
  std::vector<Json> values;
};

/// Fields of an object from outside; each must be taken. Null fields and empty lists of texts count
/// as not given. All methods throw Refusal(400) and name the field.
class Fields {
 public:
  /// Refuses a value other than an object; messages call it `name`. With `inside`, fields have
  /// their path as prefix: "messages[2].role".
  Fields(const Json& object, const std::string& name, bool inside = false);
  /// Null if not given.
  const Json* take(const std::string& name);
  /// Same as take(), but null for an empty list, too.
  const Json* take_list(const std::string& name);
  /// These return whether the field was given, and store the field in `value`.
  bool text(const std::string& name, std::string& value);
  bool flag(const std::string& name, bool& value);
  bool number(const std::string& name, double least, double most, double& value);
  /// Reads an integer; `2.0` is refused.
  bool whole(const std::string& name, int64_t least, int64_t most, int64_t& value);
  bool seed(const std::string& name, uint64_t& value);
  /// Reads a text or a list of texts (with `numbers`, of integers too).
  bool texts(const std::string& name, std::vector<std::string>& values, bool numbers = false);
  /// Refuses all but these values; nulls inside are ignored.
  void only(const std::vector<Neutral>& neutrals);
  /// Moves all fields not yet taken to another object, except those in `hidden`.
  void rest(Json& to, const std::vector<std::string>& hidden);
  /// Refuses fields that were not taken.
  void finish() const;

 private:
  std::string path_of(const std::string& name) const { return inside_ + name; }
  bool is_used(const std::string& name) const;

  const Json& object_;
  std::string inside_;  // "messages[2]."
  std::vector<std::string> used_names_;
};

/// Removes null fields at any depth of an object or a list of objects.
Json without_nulls(const Json& json);

/// Refuses a text field that exceeds the limit in bytes.
void check_text(size_t bytes, size_t most, const std::string& name);

}  // namespace tessera::server
