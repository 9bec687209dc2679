#include "load/name_map.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"

namespace tessera::load {
namespace {

constexpr int64_t kMostExperts = 65536;  // for each tensor, because headers are untrusted
constexpr size_t kMostTensors = size_t{1} << 18;

// Variable in a word of a pattern, or 0.
char variable(const std::string& word) {
  return word.size() == 1 && std::string_view("NMTLRE*").find(word[0]) != std::string_view::npos
             ? word[0]
             : '\0';
}

std::optional<int64_t> number_of(const std::string& word) {
  const bool digits = !word.empty() && word.size() <= 9 &&
                      std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || (word.size() > 1 && word[0] == '0')) return std::nullopt;
  return std::stoll(word);
}

std::string before(const std::vector<std::string>& words, size_t place) {
  std::string text;
  for (size_t i = 0; i < place; ++i) text += words[i] + '.';
  return text;
}

// Matches a name against the model side of a rule and extracts the variables.
bool match_model(const std::vector<std::string>& pattern, const std::vector<std::string>& name,
                 std::map<char, std::string>& values) {
  if (pattern.size() != name.size()) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const char v = variable(pattern[i]);
    if (v == '\0' && pattern[i] != name[i]) return false;
    if (v != '\0' && v != 'T' && v != '*' && !number_of(name[i])) return false;
    if (v != '\0' && !values.emplace(v, name[i]).second) return false;
  }
  return true;
}

std::string fill_pattern(const std::vector<std::string>& pattern,
                         const std::map<char, std::string>& values) {
  std::string name;
  for (const std::string& word : pattern) {
    const char v = variable(word);
    name += (name.empty() ? "" : ".") + (v == '\0' ? word : values.at(v));
  }
  return name;
}

bool matches(const std::string& name, const std::vector<const char*>& patterns) {
  return std::ranges::any_of(patterns, [&](std::string_view pattern) {
    if (!pattern.ends_with('*')) return name == pattern;
    return name.starts_with(pattern.substr(0, pattern.size() - 1));
  });
}

// Rows of a part that begins after `first` shares.
TensorEntry part_of(const TensorEntry& whole, int64_t first, int64_t shares, int64_t all,
                    Layout layout) {
  if (layout == Layout::pixel) {
    TensorEntry matrix = whole;
    while (matrix.sizes.size() > 2 && matrix.sizes.back() == 1) matrix.sizes.pop_back();
    return matrix;
  }
  if (all > shares) {
    const int64_t unit = whole.sizes[0] / all;
    return rows_of(whole, first * unit, (first + shares) * unit);
  }
  TensorEntry same = whole;
  same.halves_swapped = layout == Layout::halves_swapped;
  return same;
}

}  // namespace

std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    if (c == '.')
      words.emplace_back();
    else
      words.back() += c;
  }
  return words;
}

NameMap::NameMap(const NameTable& table, const std::vector<std::string>& file_names)
    : table_(&table) {
  for (const NameRule& rule : table.rules) {
    Rule& entry = rules_.emplace_back(Rule{words_of(rule.file), {}, &rule});
    for (const char* name : rule.model) entry.model.push_back(words_of(name));
  }
  for (const std::string& name : file_names) {
    base::check_stop();
    const Words words = words_of(name);
    for (size_t i = 0; i < std::min<size_t>(words.size(), 8); ++i)
      if (const auto number = number_of(words[i])) {
        int64_t& last = last_[before(words, i)];
        last = std::max(last, *number);
      }
  }
  int64_t in_file = 0, own = 0;
  for (const std::string& name : file_names) {
    base::check_stop();
    const Words words = words_of(name);
    in_file += std::ranges::any_of(rules_, [&](const Rule& rule) {
      Values values;
      return match_file(rule.file, words, values);
    });
    own += std::ranges::any_of(rules_, [&](const Rule& rule) {
      return std::ranges::any_of(rule.model, [&](const Words& model) {
        Values values;
        return match_model(model, words, values);
      });
    });
  }
  applies_ = in_file > own;
}

std::string NameMap::last_at(const Words& words, size_t place) const {
  const auto it = last_.find(before(words, place));
  return it == last_.end() ? "" : std::to_string(it->second);
}

// A number, counted down from the largest at the same position.
std::string NameMap::from_the_end(const Words& words, size_t place) const {
  const auto last = number_of(last_at(words, place));
  return last ? std::to_string(std::max<int64_t>(*last - *number_of(words[place]), 0))
              : words[place];
}

bool NameMap::match_file(const Words& pattern, const Words& name, Values& values) const {
  if (pattern.size() != name.size()) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const char v = variable(pattern[i]);
    if (v == '\0') {
      if (pattern[i] != name[i]) return false;
      continue;
    }
    std::string value = name[i];
    if (v != 'T' && v != '*' && !number_of(name[i])) return false;
    if (v == 'L' && name[i] != last_at(name, i)) return false;
    if (v == 'R') value = from_the_end(name, i);
    if (!values.emplace(v, std::move(value)).second) return false;
  }
  return true;
}

std::map<std::string, TensorEntry> NameMap::model_tensors(const std::string& name,
                                                          const TensorEntry& entry,
                                                          const std::string& file) const {
  const Words words = words_of(name);
  std::map<std::string, TensorEntry> tensors;
  for (const Rule& rule : rules_) {
    Values values;
    if (!match_file(rule.file, words, values)) continue;
    if (rule.source->layout == Layout::experts) return experts_of(rule, values, name, entry, file);
    std::vector<int> shares = rule.source->shares;
    if (shares.empty()) shares.assign(rule.model.size(), 1);
    const int all = std::accumulate(shares.begin(), shares.end(), 0);
    const int units = rule.source->layout == Layout::halves_swapped ? 2 : all;
    require(units == 1 ||
                (!entry.sizes.empty() && entry.sizes.size() <= 2 && entry.sizes[0] % units == 0),
            ErrorCode::model,
            "{}: tensor {} has the shape [{}]; expected a multiple of {} rows, which stand for {}",
            file, base::printable(name), fmt::join(entry.sizes, ", "), units,
            fmt::join(rule.source->model, ", "));
    int64_t first = 0;
    for (size_t i = 0; i < rule.model.size(); ++i) {
      if (rule.source->model[i] != std::string_view("-"))
        tensors[fill_pattern(rule.model[i], values)] =
            part_of(entry, first, shares[i], all, rule.source->layout);
      first += shares[i];
    }
    return tensors;
  }
  return tensors;
}

// The matrices of a tensor of experts, each cut into those that stand below one another.
std::map<std::string, TensorEntry> NameMap::experts_of(const Rule& rule, Values& values,
                                                       const std::string& name,
                                                       const TensorEntry& entry,
                                                       const std::string& file) const {
  TensorEntry rows = entry;
  if (rows.drops_ones && rows.sizes.size() == 2) rows.sizes.insert(rows.sizes.begin(), 1);
  const auto parts = static_cast<int64_t>(rule.model.size());
  require(rows.sizes.size() == 3 && rows.sizes[0] <= kMostExperts && rows.elements() > 0 &&
              rows.sizes[1] % parts == 0,
          ErrorCode::model,
          "{}: tensor {} has the shape [{}]; expected [experts, rows, columns] of at most {} "
          "experts, and a multiple of {} rows",
          file, base::printable(name), fmt::join(entry.sizes, ", "), kMostExperts, parts);
  const int64_t experts = rows.sizes[0], expert_rows = rows.sizes[1] / parts;
  rows.sizes = {experts * parts * expert_rows, rows.sizes[2]};
  std::map<std::string, TensorEntry> tensors;
  for (int64_t i = 0; i < experts * parts; ++i) {
    base::check_stop();
    values['E'] = std::to_string(i / parts);
    tensors[fill_pattern(rule.model[static_cast<size_t>(i % parts)], values)] =
        rows_of(rows, i * expert_rows, (i + 1) * expert_rows);
  }
  return tensors;
}

std::string NameMap::file_name(const std::string& model_name) const {
  const Words words = words_of(model_name);
  for (const Rule& rule : rules_)
    for (const Words& model : rule.model) {
      Values values;
      if (!match_model(model, words, values)) continue;
      Words name = rule.file;
      for (size_t i = 0; i < name.size(); ++i) {
        const char v = variable(name[i]);
        if (v == '\0') continue;
        name[i] = values.at(v);
        if (v == 'R') name[i] = from_the_end(name, i);
      }
      Values again;  // rules for the last number apply only to the last number
      const std::string text = fmt::format("{}", fmt::join(name, "."));
      if (match_file(rule.file, name, again)) return text;
    }
  return "";
}

bool NameMap::marked(const NameTable& table, const std::vector<std::string>& names) {
  return std::ranges::any_of(names,
                             [&](const std::string& name) { return matches(name, table.marks); });
}

TensorFile with_model_names(const TensorFile& file, const NameMap& map) {
  if (!map.applies()) return file;
  std::map<std::string, TensorEntry> tensors;
  for (const auto& [name, entry] : file.entries()) {
    base::check_stop();
    if (matches(name, map.table().unread)) continue;
    std::map<std::string, TensorEntry> parts = map.model_tensors(name, entry, file.path());
    if (parts.empty()) parts[name] = entry;
    require(tensors.size() + parts.size() <= kMostTensors, ErrorCode::model,
            "{}: it holds more than {} tensors; expected fewer: download the file again",
            file.path(), kMostTensors);
    for (auto& [model_name, part] : parts) {
      const bool added = tensors.emplace(model_name, std::move(part)).second;
      require(added, ErrorCode::model,
              "{}: tensor {} is there by two names, one of them {}; expected one", file.path(),
              base::printable(model_name), base::printable(name));
    }
  }
  return file.with(std::move(tensors));
}

}  // namespace tessera::load
