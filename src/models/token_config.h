#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/config_reader.h"
#include "models/llada.h"
#include "models/token_spec.h"

namespace tessera::models {

/// An unsupported key, and the values under which the key has no effect: JSON texts, in addition to
/// null. `what` describes the feature for messages.
struct GuardedKey {
  const char* key;
  std::vector<const char*> inert;
  const char* what;
};

/// Reads a language model's config.json and refuses unknown keys.
class TokenConfig : public base::ConfigReader {
 public:
  using ConfigReader::ConfigReader;
  using ConfigReader::integer;

  /// A required integer.
  int64_t integer(const char* key, int64_t low, int64_t high) const;
  /// A boolean; null is false, as in Python.
  bool truth(const char* key, bool missing) const;
  std::string text(const char* key, const std::string& missing) const;
  /// An id or a list of ids below `vocabulary`; empty if missing.
  std::vector<int32_t> ids(const char* key, int64_t vocabulary) const;
  /// A list of `count` values 0 or 1, or a single value for all.
  std::vector<bool> flags(const char* key, size_t count) const;
  /// Refuses the model because of an unsupported value of `key`.
  [[noreturn]] void refuse_value(const char* key, const std::string& expected) const;
  /// Refuses the model if a key was neither read nor is inert, for the family (`inert`, and
  /// `guarded` with its value) or in general (names, dtypes, training, caches).
  void check_rest(std::span<const char* const> inert, std::span<const GuardedKey> guarded) const;
  /// Value of a required key.
  const base::Json& at(const char* key) const;
};

/// Defaults of a family's released configuration class.
struct TokenDefaults {
  double rotary_part = 1;  ///< share of a head's channels
  int64_t context = 0;
};

/// Reads keys common to both families: sizes, norms, rotary, ids.
void read_common(const TokenConfig& reader, const TokenDefaults& defaults, LladaConfig& c);

/// Builds a spec over the shared network.
TokenSpec spec_of(const LladaConfig& config);

}  // namespace tessera::models
