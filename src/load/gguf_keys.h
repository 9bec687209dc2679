#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"

namespace tessera::load {

/// Metadata of a GGUF file. Keys count as known when they are read.
class GgufKeys {
 public:
  /// Reads the header of a file. Throws Error(model).
  explicit GgufKeys(const std::string& path);

  const std::string& path() const { return path_; }
  const std::string& architecture() const { return architecture_; }
  /// A key in full: ".NAME" is one of the architecture.
  std::string full(const std::string& key) const;
  /// The value of a key, or null.
  const base::Json& find(const std::string& key) const;
  /// The value of a required key. Throws Error(model) naming the key.
  const base::Json& at(const std::string& key) const;
  /// A whole number from 0 to 2^31 of a required key.
  int64_t whole(const std::string& key) const;
  /// Throws unless a key is missing or has one of these values.
  void expect(const std::string& key, const std::vector<base::Json>& values) const;
  /// Refuses the model because of the value of a key.
  [[noreturn]] void refuse(const std::string& key, const std::string& expected) const;
  /// Refuses the model because of `what`.
  [[noreturn]] void refuse_file(const std::string& what) const;
  /// Throws for a key of the architecture, or under "diffusion.", that was not read.
  void check_rest() const;

 private:
  std::string path_, architecture_;
  base::Json values_;
  mutable std::set<std::string> read_;
};

}  // namespace tessera::load
