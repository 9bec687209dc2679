#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/json.h"

namespace tessera::base {

/// Reads the keys of a config.json. A key that is missing or null has the default that its caller
/// gives; a value that does not fit throws Error(model) naming file, key, value and what fits.
class ConfigReader {
 public:
  /// `config` must outlive the reader. `where` names the file in messages.
  ConfigReader(const Json& config, std::string where);

  /// Whether the key is there with a value.
  bool has(const char* key) const;
  /// A whole number from `low` to `high`.
  int64_t integer(const char* key, int64_t missing, int64_t low, int64_t high) const;
  /// A width, a count or a size: a whole number from 1 to 2^20.
  int64_t size(const char* key, int64_t missing) const;
  /// The same for a key that must be there.
  int64_t size(const char* key) const;
  /// Any finite number.
  double number(const char* key, double missing) const;
  bool flag(const char* key, bool missing) const;
  /// One of `known`.
  std::string choice(const char* key, const char* missing,
                     std::initializer_list<const char*> known) const;
  /// Whole numbers from 0 to 2^20.
  std::vector<int64_t> sizes(const char* key, std::vector<int64_t> missing) const;
  std::vector<double> numbers(const char* key) const;
  /// Throws unless a flag is missing or false: `what` says what is not supported.
  void refuse(const char* key, const char* what) const;

  const std::string& where() const { return where_; }
  /// A value as messages show it.
  static std::string shown(const Json& value);

 private:
  const Json* find(const char* key) const;
  const Json& config_;
  std::string where_;
};

}  // namespace tessera::base
