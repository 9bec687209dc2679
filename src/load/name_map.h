#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "load/name_rules.h"
#include "load/tensor_file.h"

namespace tessera::load {

/// The parts of a tensor's name between its dots.
std::vector<std::string> words_of(std::string_view name);

/// A table, applied to the names of one file.
class NameMap {
 public:
  NameMap(const NameTable& table, const std::vector<std::string>& file_names);

  /// Whether more of the file's names are the table's than the model's.
  bool applies() const { return applies_; }
  /// The tensor of the file as those of the model, by name. Empty: no rule is for it. Throws
  /// Error(model) naming `file` and the tensor, if its rows cannot be cut as the rule says.
  std::map<std::string, TensorEntry> model_tensors(const std::string& name,
                                                   const TensorEntry& entry,
                                                   const std::string& file) const;
  /// The file's name for the tensor that holds a tensor of the model; "" if there is no rule.
  std::string file_name(const std::string& model_name) const;
  /// Whether one of the marks is among names.
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
  std::map<std::string, int64_t> last_;  // the largest number behind the words before it
};

/// The file with the names of the model, if the table applies. Tensors that the table calls unread
/// are left out. Throws Error(model) naming the tensor whose rows do not fit, or a name that stands
/// for two.
TensorFile with_model_names(const TensorFile& file, const NameMap& map);

}  // namespace tessera::load
