#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/json.h"

namespace tessera::server {

/// A field of another's form that Tessera has no use for, and what it may say all the same: values
/// that ask for nothing.
struct Neutral {
  const char* name;
  std::vector<Json> values;
};

/// The fields of an object that was read from outside, each of which must be taken. A field that is
/// null counts as not given, known or not, and so does an empty list of texts. All throw
/// Refusal(400) that names the field.
class Fields {
 public:
  /// Refuses what is no object; `what` names it. Of one `inside` another one fields are named by
  /// their path: "messages[2].role".
  Fields(const Json& object, const std::string& what, bool inside = false);
  /// Null where it is not given.
  const Json* take(const std::string& name);
  /// The same; also where it is an empty list.
  const Json* take_list(const std::string& name);
  /// The others: whether it was given, and is now in `value`.
  bool text(const std::string& name, std::string& value);
  bool flag(const std::string& name, bool& value);
  bool number(const std::string& name, double least, double most, double& value);
  /// Whole numbers; `2.0` is none.
  bool whole(const std::string& name, int64_t least, int64_t most, int64_t& value);
  bool seed(const std::string& name, uint64_t& value);
  /// A text, or a list of texts (and of whole numbers where `numbers`).
  bool texts(const std::string& name, std::vector<std::string>& values, bool numbers = false);
  /// Refuses other values than these; nulls inside them do not count.
  void only(const std::vector<Neutral>& all);
  /// Takes the fields that nobody took yet into another object, but for `hidden` ones.
  void rest(Json& to, const std::vector<std::string>& hidden);
  /// Refuses a field that nobody took.
  void finish() const;

 private:
  std::string path_of(const std::string& name) const { return inside_ + name; }
  bool taken(const std::string& name) const;

  const Json& object_;
  std::string inside_;  // "messages[2]."
  std::vector<std::string> taken_;
};

/// An object, or a list of objects, without null fields at any depth.
Json without_nulls(const Json& json);

/// Refuses more bytes of text in a field than a request may have.
void check_text(size_t bytes, size_t most, const std::string& name);

}  // namespace tessera::server
