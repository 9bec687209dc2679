#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"

namespace tessera::base {

/// Reads the keys of a config.json. A missing or null key takes the caller's default; an invalid
/// value throws Error(model) with file, key, value and the valid values. Not thread-safe.
class ConfigReader {
 public:
  /// `config` must outlive the reader. `where` names the file in messages.
  ConfigReader(const Json& config, std::string where);

  /// Whether the key is present with a value.
  bool has(const char* key) const;
  /// A whole number from `low` to `high`.
  int64_t integer(const char* key, int64_t missing, int64_t low, int64_t high) const;
  /// A width, a count or a size: a whole number from 1 to 2^20.
  int64_t size(const char* key, int64_t missing) const;
  /// The size of a required key.
  int64_t size(const char* key) const;
  /// A finite number from `low` to `high`.
  double number(const char* key, double missing, double low = -kLargest,
                double high = kLargest) const;
  /// A number above 0, up to 10^6.
  double positive(const char* key, double missing) const;
  /// A number above 0 and below 1.
  double fraction(const char* key, double missing) const;
  bool flag(const char* key, bool missing) const;
  /// A value from `choices`.
  std::string choice(const char* key, const char* missing,
                     std::initializer_list<const char*> choices) const;
  /// Whole numbers from 0 to 2^20.
  std::vector<int64_t> sizes(const char* key, std::vector<int64_t> missing) const;
  /// Numbers above 0 and below 1; empty if the key is missing.
  std::vector<double> fractions(const char* key) const;
  /// Throws unless the key is missing or a list with only the value `only`.
  void all(const char* key, const char* only) const;
  /// Throws unless a flag is missing or false; `feature` names the unsupported feature.
  void refuse(const char* key, const char* feature) const;

  const std::string& where() const { return where_; }
  /// A value in the form of messages; the text is built only when read.
  struct Shown {
    const Json& value;
    std::string str() const;
  };
  static Shown shown(const Json& value) { return {value}; }

 protected:
  /// The value of a key, or null. Marks the key as read.
  const Json* find(const char* key) const;
  const Json& config() const { return config_; }
  bool was_read(const std::string& key) const { return read_.contains(key); }

 private:
  static constexpr double kLargest = std::numeric_limits<double>::max();
  double checked(const char* key, const Json& value, bool (*fits)(double),
                 const char* expected) const;
  const Json& config_;
  std::string where_;
  mutable std::set<std::string> read_;
};

}  // namespace tessera::base

template <>
struct fmt::formatter<tessera::base::ConfigReader::Shown> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const tessera::base::ConfigReader::Shown& shown, Context& context) const {
    return fmt::formatter<std::string_view>::format(shown.str(), context);
  }
};
