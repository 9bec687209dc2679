#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/config_reader.h"
#include "models/llada.h"
#include "models/token_spec.h"

namespace tessera::models {

/// A key that this build does not compute with, and the values under which it changes nothing: a
/// JSON text each, beside null. `what` names what another value would ask for.
struct GuardedKey {
  const char* key;
  std::vector<const char*> inert;
  const char* what;
};

/// Reads a language model's config.json, and refuses what it was not asked for.
class TokenConfig : public base::ConfigReader {
 public:
  using ConfigReader::ConfigReader;
  using ConfigReader::integer;

  /// A whole number that must be there.
  int64_t integer(const char* key, int64_t low, int64_t high) const;
  /// As in Python, null is false.
  bool truth(const char* key, bool missing) const;
  std::string text(const char* key, const std::string& missing) const;
  /// One id or a list of ids below `vocabulary`; nothing if the key is missing.
  std::vector<int32_t> ids(const char* key, int64_t vocabulary) const;
  /// A list of so many 0 or 1, or one of these for all.
  std::vector<bool> flags(const char* key, size_t count) const;
  /// Refuses the model: `key` has a value that this build does not compute with.
  [[noreturn]] void refuse_value(const char* key, const std::string& expected) const;
  /// Refuses the model if a key that is in the file was neither read nor is inert, in the family
  /// (`inert`, and `guarded` with its value) or in all (names, dtypes, training, caches).
  void check_rest(std::span<const char* const> inert, std::span<const GuardedKey> guarded) const;
  /// The value of a key that must be there.
  const base::Json& at(const char* key) const;
};

/// What a family's released configuration class has for keys that are not in the file.
struct TokenDefaults {
  double rotary_part = 1;  ///< of a head's channels
  int64_t context = 0;
};

/// What both families say with the same keys: sizes, norms, rotary, ids.
void read_common(const TokenConfig& read, const TokenDefaults& defaults, LladaConfig& c);

/// A spec over the shared network.
TokenSpec spec_of(const LladaConfig& config);

}  // namespace tessera::models
