#include "tessera/step_cache.h"

#include <charconv>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "base/fail.h"
#include "base/printable.h"
#include "tessera/words.h"

namespace tessera {
namespace {

using Rule = StepCacheRule;

constexpr double kLargest = 1e6;
constexpr size_t kMostNumbers = 4096;

// FLUX.1-dev, 28 steps, as published by MagCache.
constexpr double kFluxRatios[] = {1.0,     1.21094, 1.11719, 1.07812, 1.0625,  1.03906, 1.03125,
                                  1.03906, 1.02344, 1.03125, 1.02344, 0.98047, 1.01562, 1.00781,
                                  1.0,     1.00781, 1.0,     1.00781, 1.0,     1.0,     0.99609,
                                  0.99609, 0.98047, 0.98828, 0.96484, 0.95703, 0.93359, 0.89062};
// FLUX.1-dev, as published by TeaCache.
constexpr double kFluxCoefficients[] = {498.651651, -283.781631, 55.8554382, -3.82021401,
                                        0.264230861};

/// The position of a value in the text, for messages.
struct Place {
  std::string_view rule, key, value;
  [[noreturn]] void refuse(const std::string& expected) const {
    fail(ErrorCode::usage, "`cache` {}: {}={}: expected {}", rule, key, base::printable(value),
         expected);
  }
};

template <class Number>
Number read(const Place& at, std::string_view text, double least, double most) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() ||
      !(static_cast<double>(value) >= least && static_cast<double>(value) <= most))
    at.refuse(fmt::format("{} from {} to {}",
                          std::is_integral_v<Number> ? "a whole number" : "a number", least, most));
  return value;
}

// "a+b+c", or a name of a published list.
std::vector<double> read_list(const Place& at, std::span<const double> flux) {
  if (at.value == "flux") return {flux.begin(), flux.end()};
  std::vector<double> values;
  for (size_t from = 0; from <= at.value.size();) {
    // A sign or an exponent's sign does not begin a new number.
    size_t plus = at.value.find('+', from + 1);
    while (plus != std::string_view::npos && plus > 0 &&
           (at.value[plus - 1] == 'e' || at.value[plus - 1] == 'E'))
      plus = at.value.find('+', plus + 1);
    const size_t end = std::min(plus, at.value.size());
    values.push_back(read<double>(at, at.value.substr(from, end - from), -kLargest, kLargest));
    if (values.size() > kMostNumbers) at.refuse(fmt::format("at most {} numbers", kMostNumbers));
    from = end + 1;
  }
  return values;
}

std::string list_text(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : "+") + fmt::format("{}", value);
  return text;
}

/// A key of some rules, with its reader and writer; the writer returns "" to leave the key out.
struct Key {
  const char* name;
  std::set<Rule> rules;
  std::function<void(StepCache&, const Place&)> read;
  std::function<std::string(const StepCache&)> write;
};

Key whole(const char* name, std::set<Rule> rules, int StepCache::*field, int least, int most) {
  return {name, std::move(rules),
          [=](StepCache& cache, const Place& at) {
            cache.*field = read<int>(at, at.value, least, most);
          },
          [=](const StepCache& cache) { return std::to_string(cache.*field); }};
}

Key number(const char* name, std::set<Rule> rules, double StepCache::*field, double most) {
  return {name, std::move(rules),
          [=](StepCache& cache, const Place& at) {
            cache.*field = read<double>(at, at.value, 0, most);
          },
          [=](const StepCache& cache) { return fmt::format("{}", cache.*field); }};
}

Key numbers(const char* name, Rule rule, std::vector<double> StepCache::*field,
            std::span<const double> flux) {
  return {name,
          {rule},
          [=](StepCache& cache, const Place& at) { cache.*field = read_list(at, flux); },
          [=](const StepCache& cache) { return list_text(cache.*field); }};
}

Key choice(const char* name, std::set<Rule> rules, bool StepCache::*field, const char* no,
           const char* yes) {
  return {name, std::move(rules),
          [=](StepCache& cache, const Place& at) {
            if (at.value != no && at.value != yes) at.refuse(fmt::format("{} or {}", no, yes));
            cache.*field = at.value == yes;
          },
          [=](const StepCache& cache) { return cache.*field ? yes : no; }};
}

Key mask() {
  return {"mask",
          {Rule::dbcache},
          [](StepCache& cache, const Place& at) {
            cache.mask.clear();
            for (const char digit : at.value) {
              if ((digit != '0' && digit != '1') || cache.mask.size() == kMostNumbers)
                at.refuse("a digit for each step, 1 for computed");
              cache.mask.push_back(digit == '1');
            }
          },
          [](const StepCache& cache) {
            std::string text;
            for (const bool computed : cache.mask) text += computed ? '1' : '0';
            return text;
          }};
}

const std::vector<Key>& keys() {
  constexpr int kSteps = 1 << 20;
  static const std::vector<Key> all{
      number("threshold",
             {Rule::fbcache, Rule::dbcache, Rule::magcache, Rule::teacache, Rule::drift},
             &StepCache::threshold, kLargest),
      whole("Fn", {Rule::dbcache}, &StepCache::first_blocks, 1, 4096),
      whole("Bn", {Rule::dbcache}, &StepCache::last_blocks, 0, 4096),
      whole("warmup", {Rule::dbcache}, &StepCache::warmup, 0, kSteps),
      whole("warmup_interval", {Rule::dbcache}, &StepCache::warmup_interval, 1, kSteps),
      whole("max_cached", {Rule::dbcache}, &StepCache::max_cached, -1, kSteps),
      whole("max_continuous", {Rule::dbcache}, &StepCache::max_continuous, -1, kSteps),
      whole("taylor", {Rule::dbcache}, &StepCache::taylor, 0, 4),
      mask(),
      choice("policy", {Rule::dbcache}, &StepCache::mask_decides, "dynamic", "static"),
      whole("order", {Rule::taylorseer}, &StepCache::order, 0, 4),
      whole("interval", {Rule::taylorseer}, &StepCache::interval, 1, kSteps),
      whole("before", {Rule::taylorseer}, &StepCache::before, 1, kSteps),
      whole("after", {Rule::taylorseer}, &StepCache::after, -1, kSteps),
      choice("lite", {Rule::taylorseer}, &StepCache::lite, "0", "1"),
      whole("max_skip", {Rule::magcache, Rule::drift}, &StepCache::max_skip, 0, kSteps),
      number("retention", {Rule::magcache}, &StepCache::retention, 1),
      numbers("ratios", Rule::magcache, &StepCache::ratios, kFluxRatios),
      numbers("coefficients", Rule::teacache, &StepCache::coefficients, kFluxCoefficients),
      choice("branches",
             {Rule::fbcache, Rule::dbcache, Rule::taylorseer, Rule::magcache, Rule::teacache,
              Rule::drift},
             &StepCache::apart, "together", "apart")};
  return all;
}

std::string names_for(Rule rule) {
  std::string names;
  for (const Key& key : keys())
    if (key.rules.contains(rule)) names += (names.empty() ? "" : ", ") + std::string(key.name);
  return names;
}

double default_threshold(Rule rule) {
  switch (rule) {
    case Rule::fbcache: return 0.05;
    case Rule::dbcache: return 0.08;
    case Rule::magcache: return 0.06;
    case Rule::teacache: return 0.25;
    case Rule::drift: return 0.1;
    case Rule::taylorseer: break;
  }
  return 0;
}

void read_entry(StepCache& cache, std::string_view entry, std::set<std::string_view>& names) {
  const std::string rule = word_of(cache.rule);
  const size_t equals = std::min(entry.find('='), entry.size());
  const std::string_view name = entry.substr(0, equals);
  for (const Key& key : keys()) {
    if (name != key.name || !key.rules.contains(cache.rule)) continue;
    require(equals < entry.size(), ErrorCode::usage, "`cache` {}: '{}' has no value; write {}=...",
            rule, key.name, key.name);
    require(names.insert(name).second, ErrorCode::usage, "`cache` {}: '{}' is given twice", rule,
            key.name);
    return key.read(cache, {rule, name, entry.substr(equals + 1)});
  }
  fail(ErrorCode::usage, "`cache` {}: {} is not known; known are {}", rule, base::printable(name),
       names_for(cache.rule));
}

}  // namespace

StepCache parse_step_cache(const std::string& text) {
  const std::string_view all = text;
  StepCache cache;
  size_t at = std::min(all.find(','), all.size());
  cache.rule = choice_of<Rule>(text.substr(0, at), "`cache`");
  cache.threshold = default_threshold(cache.rule);
  if (cache.rule == Rule::drift) cache.max_skip = 4;
  std::set<std::string_view> names;
  while (at < all.size()) {
    const size_t end = std::min(all.find(',', at + 1), all.size());
    read_entry(cache, all.substr(at + 1, end - at - 1), names);
    at = end;
  }
  check_values(cache);
  return cache;
}

std::string to_string(const StepCache& cache) {
  std::string text = word_of(cache.rule);
  for (const Key& key : keys()) {
    const std::string value = key.rules.contains(cache.rule) ? key.write(cache) : "";
    if (!value.empty()) text += fmt::format(",{}={}", key.name, value);
  }
  return text;
}

void check_values(const StepCache& cache) {
  const auto number = static_cast<int>(cache.rule);
  require(number >= 0 && number < std::ssize(words_of<Rule>()), ErrorCode::usage,
          "`cache` {}: expected a rule from 0 to {}", number, words_of<Rule>().size() - 1);
  const std::string rule = word_of(cache.rule);
  for (const Key& key : keys()) {
    const std::string value = key.rules.contains(cache.rule) ? key.write(cache) : "";
    StepCache again;
    if (!value.empty()) key.read(again, {rule, key.name, value});
  }
  require(cache.rule != Rule::magcache || !cache.ratios.empty(), ErrorCode::usage,
          "`cache` magcache needs the model's ratios: ratios=a+b+..., or ratios=flux for FLUX.1");
  require(cache.rule != Rule::teacache || !cache.coefficients.empty(), ErrorCode::usage,
          "`cache` teacache needs the model's polynomial: coefficients=a+b+..., or "
          "coefficients=flux for FLUX.1");
  require(cache.rule != Rule::dbcache || !cache.mask_decides || !cache.mask.empty(),
          ErrorCode::usage, "`cache` dbcache,policy=static needs mask=, a digit for each step");
}

}  // namespace tessera
