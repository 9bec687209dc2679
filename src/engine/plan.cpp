#include "tessera/plan.h"

#include <array>
#include <charconv>
#include <set>
#include <string_view>
#include <utility>

#include "base/fail.h"

namespace tessera {
namespace {

constexpr std::array<std::pair<std::string_view, int Plan::*>, 9> kFields{{
    {"data", &Plan::data},
    {"cfg", &Plan::cfg},
    {"pipefusion", &Plan::pipefusion},
    {"patches", &Plan::patches},
    {"ulysses", &Plan::ulysses},
    {"ring", &Plan::ring},
    {"tensor", &Plan::tensor},
    {"expert", &Plan::expert},
    {"warmup", &Plan::warmup},
}};
constexpr int kLargest = 1 << 16;

std::string known_names() {
  std::string names;
  for (const auto& [name, field] : kFields) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

int parse_value(std::string_view name, std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc() && end == text.data() + text.size() && value >= 1 && value <= kLargest,
          ErrorCode::plan, "plan entry '{}={}': expected a whole number from 1 to {}", name, text,
          kLargest);
  return value;
}

}  // namespace

Plan parse_plan(const std::string& text) {
  Plan plan;
  std::set<std::string_view> seen;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(entry.size() + 1, rest.size()));
    const size_t equals = entry.find('=');
    require(equals != std::string_view::npos, ErrorCode::plan,
            "plan entry '{}' has no value; write name=value with one of: {}", entry, known_names());
    const std::string_view name = entry.substr(0, equals);
    require(seen.insert(name).second, ErrorCode::plan, "plan entry '{}' stands twice", name);
    int Plan::*field = nullptr;
    for (const auto& [known, member] : kFields)
      if (known == name) field = member;
    require(field != nullptr, ErrorCode::plan, "unknown plan entry '{}'; known are: {}", name,
            known_names());
    plan.*field = parse_value(name, entry.substr(equals + 1));
  }
  return plan;
}

std::string to_string(const Plan& plan) {
  const Plan usual;
  std::string text;
  for (const auto& [name, field] : kFields)
    if (plan.*field != usual.*field)
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, plan.*field);
  return text;
}

std::vector<std::string> problems(const Plan& plan, int ranks) {
  std::vector<std::string> found;
  if (plan.world() != ranks)
    found.push_back(fmt::format("the plan needs {} ranks, {} were given", plan.world(), ranks));
  if (plan.world() > 1 || plan.expert > 1 || plan.patches > 1)
    found.push_back(fmt::format("'{}' spreads a request, and this version runs on one rank only",
                                to_string(plan)));
  return found;
}

}  // namespace tessera
