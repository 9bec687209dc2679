#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tessera::server {

/// Who may ask: names and keys of a file, a line each: `NAME KEY`, or a key alone, which is called
/// by its line. Empty lines and what follows '#' at the begin of a line count for nothing.
class ApiKeys {
 public:
  ApiKeys() = default;
  /// Throws Error(usage) for a file that cannot be read, has no key, one below 16 characters, or
  /// may be read by others than its owner and group.
  explicit ApiKeys(const std::string& path);

  bool any() const { return !keys_.empty(); }
  /// The name of the key in "Bearer KEY"; "" when there is none of it. Takes as long whichever key
  /// it is compared with, and however much of it is right.
  std::string name_of(const std::string& authorization) const;

 private:
  std::vector<std::pair<std::string, std::string>> keys_;
};

/// Whether two texts are the same, in a time that depends on the length of `given` alone.
bool same_text(const std::string& given, const std::string& secret);

}  // namespace tessera::server
