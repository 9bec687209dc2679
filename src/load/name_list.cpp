#include "load/name_list.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>

#include "base/fail.h"
#include "base/printable.h"
#include "base/stop.h"

namespace tessera::load {
namespace {

constexpr size_t kShown = 200;   // maximum entries of a message
constexpr size_t kMostAxes = 8;  // numbers of a name; further numbers count as text
constexpr size_t kLongestList = 200;

using Numbers = std::vector<int64_t>;

// Pattern of "blocks.3.w": {"blocks.", ".w"} around {3}.
struct Pattern {
  std::vector<std::string> pieces{""};
  Numbers numbers;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

Pattern parse(const std::string& name) {
  Pattern pattern;
  for (size_t at = 0; at < name.size();) {
    size_t end = at;
    while (end < name.size() && is_digit(name[end])) ++end;
    const size_t digits = end - at;
    const bool number = digits > 0 && digits <= 9 && (digits == 1 || name[at] != '0') &&
                        pattern.numbers.size() < kMostAxes;
    if (number) {
      pattern.numbers.push_back(std::stoll(name.substr(at, digits)));
      pattern.pieces.emplace_back();
    } else {
      end = std::max(end, at + 1);
      pattern.pieces.back() += name.substr(at, end - at);
    }
    at = end;
  }
  return pattern;
}

std::string numbers_text(const std::set<int64_t>& values) {
  const int64_t low = *values.begin(), high = *values.rbegin();
  if (low == high) return std::to_string(low);
  if (high - low + 1 == static_cast<int64_t>(values.size()))
    return fmt::format("{{{}-{}}}", low, high);
  std::string list;
  for (const int64_t value : values) {
    if (list.size() > kLongestList) break;  // longer lists are cut anyway
    list += (list.empty() ? "" : ",") + std::to_string(value);
  }
  return "{" + list + "}";
}

struct Group {
  std::vector<std::string> pieces;
  std::string note;
  std::vector<Numbers> rows;
};

class Entries {
 public:
  std::vector<std::string> all;
  size_t items = 0;  // number of combined items
  bool full() const { return all.size() >= kShown; }

  // Appends a single entry if every combination of the numbers exists; else an entry for each value
  // of an axis.
  void append(const Group& group, size_t axis = 0) {
    if (full()) return;
    std::vector<std::set<int64_t>> values(group.pieces.size() - 1);
    for (const Numbers& row : group.rows) {
      base::check_stop();
      for (size_t i = 0; i < row.size(); ++i) values[i].insert(row[i]);
    }
    size_t combinations = 1;
    for (const auto& axis_values : values)
      combinations = std::min(combinations * axis_values.size(), group.rows.size() + 1);
    if (combinations == group.rows.size() || axis == values.size()) {
      std::string text = group.pieces[0];
      for (size_t i = 0; i < values.size(); ++i)
        text += numbers_text(values[i]) + group.pieces[i + 1];
      all.push_back(base::printable(text) + group.note);
      items += group.rows.size();
      return;
    }
    std::map<int64_t, Group> parts;
    for (const Numbers& row : group.rows) parts[row[axis]].rows.push_back(row);
    for (auto& [value, part] : parts) {
      part.pieces = group.pieces;
      part.note = group.note;
      append(part, axis + 1);
      if (full()) return;
    }
  }
};

}  // namespace

std::string listed_names(const std::vector<NamedItem>& items) {
  std::vector<Group> groups;
  std::map<std::pair<std::vector<std::string>, std::string>, size_t> group_of;
  for (const NamedItem& item : items) {
    base::check_stop();
    Pattern pattern = parse(item.name);
    const auto [at, added] = group_of.emplace(std::pair(pattern.pieces, item.note), groups.size());
    if (added) groups.push_back({pattern.pieces, item.note, {}});
    groups[at->second].rows.push_back(std::move(pattern.numbers));
  }
  Entries entries;
  for (const Group& group : groups) entries.append(group);
  std::string text = fmt::format("{}", fmt::join(entries.all, ", "));
  if (entries.items < items.size())
    text += fmt::format(" and {} more", items.size() - entries.items);
  return text;
}

}  // namespace tessera::load
