#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "load/name_rules.h"
#include "load/tensor_file.h"

namespace tessera::load {

/// Splits a tensor's name at the dots.
std::vector<std::string> words_of(std::string_view name);

/// A table applied to the names of a file.
class NameMap {
 public:
  NameMap(const NameTable& table, const std::vector<std::string>& file_names);

  /// True if the file has more names of the table than of the model.
  bool applies() const { return applies_; }
  /// Maps a tensor of the file to tensors of the model, by name. Empty: no rule applies. Throws
  /// Error(model) naming `file` and the tensor if the rows cannot be cut by the rule.
  std::map<std::string, TensorEntry> model_tensors(const std::string& name,
                                                   const TensorEntry& entry,
                                                   const std::string& file) const;
  /// The file's name for the tensor that holds a tensor of the model; "" if there is no rule.
  std::string file_name(const std::string& model_name) const;
  /// True if one of the marks is among the names.
  static bool marked(const NameTable& table, const std::vector<std::string>& names);
  const NameTable& table() const { return *table_; }

 private:
  using Words = std::vector<std::string>;
  using Values = std::map<char, std::string>;
  struct Rule {
    Words file;
    std::vector<Words> model;
    const NameRule* source;
  };
  bool match_file(const Words& pattern, const Words& name, Values& values) const;
  std::map<std::string, TensorEntry> experts_of(const Rule& rule, Values& values,
                                                const std::string& name, const TensorEntry& entry,
                                                const std::string& file) const;
  std::string last_at(const Words& words, size_t place) const;
  std::string from_the_end(const Words& words, size_t place) const;

  const NameTable* table_;
  std::vector<Rule> rules_;
  bool applies_ = false;
  std::map<std::string, int64_t> last_;  // largest number after the preceding words
};

/// Renames the tensors of a file to the model's names, if the table applies. Unread tensors of the
/// table are dropped. Throws Error(model) naming a tensor with unsuitable rows, or an ambiguous
/// name.
TensorFile with_model_names(const TensorFile& file, const NameMap& map);

}  // namespace tessera::load
