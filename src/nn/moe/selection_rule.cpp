#include "nn/moe/selection_rule.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "base/fail.h"
#include "base/printable.h"

namespace tessera::nn {
namespace {

using Method = SelectionRule::Method;

struct MethodForm {
  const char* name;
  Method method;
  int least, most;            // numbers behind the colon
  const char* suffixes = "";  // effective suffixes, separated by blanks
};
constexpr const char* kOfCores = "k weights groups scope over ";
constexpr const char* kOfVotes = "k weights groups scope over votes ";
constexpr MethodForm kMethodForms[] = {
    {"vanilla", Method::vanilla, 0, 0},
    {"topk", Method::topk, 1, 1, "over "},
    {"des-seq", Method::seq, 1, 1, kOfCores},
    {"des-vote", Method::vote, 1, 1, kOfVotes},
    {"des-max", Method::vote_max, 1, 1, kOfVotes},
    {"des-norm4", Method::vote_norm4, 1, 1, kOfVotes},
    {"des-peak", Method::peak, 1, 1, kOfVotes},
    {"block", Method::block, 2, 2, "k weights groups "},
    {"naee", Method::naee, 1, 1, "over renormalise "},
    {"mc", Method::mc, 1, 3, "scope over renormalise "},
};
constexpr const char* kForms =
    "vanilla, topk:K, des-seq:K, des-vote:BETA, des-max:BETA, des-norm4:BETA, "
    "des-peak:WEIGHT, block:K,TOKENS, naee:BETA, mc:BETA,LOW,HIGH";

[[noreturn]] void refuse(const std::string& text, const std::string& reason) {
  fail(ErrorCode::usage, "`select` {}: {}; known are {}", base::printable(text), reason, kForms);
}

double number(const std::string& text, const std::string& word) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  if (word.empty() || *end != '\0') refuse(text, base::printable(word) + " is no number");
  return value;
}

int whole(const std::string& text, const std::string& word, const char* of) {
  const double value = number(text, word);
  if (!(value >= 1 && value <= 65536) || value != double(int(value)))
    refuse(text, fmt::format("{} is no count of {} from 1 to 65536", base::printable(word), of));
  return static_cast<int>(value);
}

double share(const std::string& text, const std::string& word) {
  const double value = number(text, word);
  if (!(value >= 0 && value <= 1)) refuse(text, base::printable(word) + " is no share from 0 to 1");
  return value;
}

void read_suffix(const std::string& text, const std::string& key, const std::string& value,
                 SelectionRule& rule) {
  using W = SelectionRule::Weights;
  using G = SelectionRule::Groups;
  if (key == "k") {
    rule.take = whole(text, value, "experts");
  } else if (key == "weights" && (value == "A" || value == "B" || value == "D")) {
    rule.weights = value == "A" ? W::a : value == "B" ? W::b : W::d;
  } else if (key == "groups" && (value == "masked" || value == "vanilla" || value == "none")) {
    rule.groups = value == "masked" ? G::masked : value == "vanilla" ? G::vanilla : G::none;
  } else if (key == "scope" && (value == "sequence" || value == "batch")) {
    rule.batch = value == "batch";
  } else if (key == "over" && (value == "all" || value == "open")) {
    rule.open = value == "open";
  } else if (key == "votes" && (value == "weight" || value == "score")) {
    rule.votes = value == "score" ? SelectionRule::Votes::score : SelectionRule::Votes::weight;
  } else {
    refuse(text, base::printable(key + "=" + value) +
                     " is not known; expected k=K, weights=A|B|D, "
                     "groups=masked|vanilla|none, scope=sequence|batch, over=all|open or "
                     "votes=weight|score");
  }
}

// Refuses suffixes without effect on a rule.
void check_suffix(const std::string& text, const MethodForm& rule, const std::string& key) {
  const std::string suffixes = rule.suffixes;
  if (suffixes.find(key + " ") != std::string::npos) return;
  std::string names;
  for (char c : suffixes.substr(0, suffixes.empty() ? 0 : suffixes.size() - 1))
    names += c == ' ' ? ", " : std::string(1, c);
  refuse(text, fmt::format("'{}' changes nothing of '{}'; {}", key, rule.name,
                           suffixes.empty() ? "leave it out" : "what does: " + names));
}

void read_numbers(const std::string& text, const std::vector<std::string>& words,
                  SelectionRule& rule) {
  if (words.empty()) return;
  if (rule.method == Method::topk || rule.method == Method::seq || rule.method == Method::block) {
    rule.k = whole(text, words[0], "experts");
    if (words.size() > 1) rule.block = whole(text, words[1], "tokens");
    return;
  }
  rule.beta = share(text, words[0]);
  if (words.size() > 1) rule.low = share(text, words[1]);
  if (words.size() > 2) rule.high = share(text, words[2]);
}

}  // namespace

SelectionRule parse_selection(const std::string& text) {
  const size_t colon = text.find(':'), comma = text.find(',');
  const std::string name = text.substr(0, std::min(colon, comma));
  const MethodForm* entry = nullptr;
  for (const MethodForm& k : kMethodForms)
    if (name == k.name) entry = &k;
  if (!entry) refuse(text, base::printable(name) + " is not known");
  SelectionRule rule{.method = entry->method};
  std::vector<std::string> words;
  std::stringstream rest(name.size() < text.size() ? text.substr(name.size() + 1) : "");
  for (std::string word; std::getline(rest, word, ',');) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    if (equals == std::string::npos && word != "renormalise") {
      words.push_back(word);
      continue;
    }
    if (equals == std::string::npos)
      rule.renormalise = true;
    else
      read_suffix(text, key, word.substr(equals + 1), rule);
    check_suffix(text, *entry, key);
  }
  const int count = static_cast<int>(words.size());
  if (count < entry->least || count > entry->most)
    refuse(text, fmt::format("{} numbers behind '{}'", count, name));
  read_numbers(text, words, rule);
  return rule;
}

std::string to_string(const SelectionRule& r) {
  std::string text;
  for (const MethodForm& k : kMethodForms)
    if (r.method == k.method) text = k.name;
  if (r.method == Method::topk || r.method == Method::seq)
    text += fmt::format(":{}", r.k);
  else if (r.method == Method::block)
    text += fmt::format(":{},{}", r.k, r.block);
  else if (r.method != Method::vanilla)
    text += fmt::format(":{}", r.beta);
  if (r.method == Method::mc) text += fmt::format(",{},{}", r.low, r.high);
  if (r.take) text += fmt::format(",k={}", r.take);
  if (r.weights != SelectionRule::Weights::d)
    text += r.weights == SelectionRule::Weights::a ? ",weights=A" : ",weights=B";
  if (r.groups != SelectionRule::Groups::masked)
    text += r.groups == SelectionRule::Groups::vanilla ? ",groups=vanilla" : ",groups=none";
  if (r.batch) text += ",scope=batch";
  if (r.open) text += ",over=open";
  if (r.votes == SelectionRule::Votes::score) text += ",votes=score";
  if (r.renormalise) text += ",renormalise";
  return text;
}

void check_selection(const SelectionRule& rule, int experts, int top_k) {
  // Messages are made on failure only: this runs for every layer of every pass.
  if (rule.k > experts || rule.take > experts)
    fail(ErrorCode::usage, "`select` '{}' asks for {} experts of a token; the model has {}",
         to_string(rule), std::max(rule.k, rule.take), experts);
  if (!rule.coreset() || rule.method == Method::seq || rule.method >= Method::peak) return;
  if (!(std::floor(rule.beta * double(experts)) >= 1))
    fail(ErrorCode::usage,
         "`select` '{}' leaves no expert: {} of {} is less than one; choose beta >= {:.4f} "
         "({} experts a token are vanilla)",
         to_string(rule), rule.beta, experts, 1.0 / double(experts), top_k);
}

}  // namespace tessera::nn
