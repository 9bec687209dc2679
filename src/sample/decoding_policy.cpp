#include "sample/decoding_policy.h"

#include <cmath>
#include <cstdlib>
#include <sstream>
#include <vector>

#include "base/fail.h"
#include "base/printable.h"
#include "tessera/words.h"

namespace tessera {
namespace sample {
namespace {

using Rule = DecodingPolicy::Rule;

constexpr const char* kRules =
    "steps:N, threshold:T, factor:F, hierarchy:T,LOW, credit:T,ALPHA,GAMMA,BETA, edit:T,E,POSTS, "
    "edit:quality, edit:speed and canvas:NAME=VALUE";

constexpr double kLeastPenalty = 0.01, kMostPenalty = 100;

struct Words {
  std::string name;
  std::vector<std::string> values;
};

Words split(const std::string& text) {
  const size_t colon = text.find(':');
  Words words{text.substr(0, colon), {}};
  if (colon == std::string::npos) return words;
  std::stringstream rest(text.substr(colon + 1));
  for (std::string word; std::getline(rest, word, ',');) words.values.push_back(word);
  return words;
}

double number(const std::string& text, const std::string& word, double low, double high) {
  char* end = nullptr;
  const double value = std::strtod(word.c_str(), &end);
  require(!word.empty() && *end == '\0' && value >= low && value <= high, ErrorCode::usage,
          "`decode` {}: {} is no number from {} to {}", base::printable(text),
          base::printable(word), low, high);
  return value;
}

int whole(const std::string& text, const std::string& word, int low, double most = 1e6) {
  const double value = number(text, word, low, most);
  require(value == std::floor(value), ErrorCode::usage, "`decode` {}: {} is no whole number",
          base::printable(text), base::printable(word));
  return static_cast<int>(value);
}

void expect_count(const std::string& text, const Words& words, size_t least, size_t most) {
  require(words.values.size() >= least && words.values.size() <= most, ErrorCode::usage,
          "`decode` {}: {} values behind '{}', expected {} to {}", base::printable(text),
          words.values.size(), words.name, least, most);
}

// Published modes by name, else the numbers.
void read_edit(const std::string& text, Words words, DecodingPolicy& policy) {
  if (words.values == std::vector<std::string>{"quality"}) words.values = {"0.7", "0.5"};
  if (words.values == std::vector<std::string>{"speed"}) words.values = {"0.5", "0"};
  require(words.values.size() == 2 || words.values.size() == 3, ErrorCode::usage,
          "`decode` {}: expected edit:quality, edit:speed or edit:T,E,POSTS",
          base::printable(text));
  policy.rule = Rule::edit;
  policy.threshold = number(text, words.values[0], 0, 2);
  policy.editing = number(text, words.values[1], 0, 2);
  if (words.values.size() > 2) policy.posts = whole(text, words.values[2], 0, kMostPosts);
}

// A canvas has its own temperature, and no masks for other settings.
void check_canvas_policy(const DecodingPolicy& p) {
  check_canvas(p.canvas);
  require(
      p.temperature == 0 && p.top_k == 0 && p.top_p == 1, ErrorCode::usage,
      "temperature, top_k and top_p are not for canvases, whose temperature falls from t_max {} "
      "to t_min {}; set these two",
      p.canvas.t_max, p.canvas.t_min);
  require(p.repetition_penalty == 1, ErrorCode::usage,
          "repetition_penalty is not for canvases, which hold random tokens; leave it out");
  require(p.cache.kind == KvCache::block, ErrorCode::usage,
          "canvases are denoised over the keys and values of finished text: their cache is block");
}

}  // namespace

void read_decode(const std::string& text, DecodingPolicy& policy) {
  const Words words = split(text);
  const auto& v = words.values;
  if (words.name == "steps") {
    expect_count(text, words, 1, 1);
    policy.rule = Rule::steps;
    policy.steps = whole(text, v[0], 1);
  } else if (words.name == "threshold") {
    expect_count(text, words, 1, 1);
    policy.rule = Rule::threshold;
    policy.threshold = number(text, v[0], 0, 2);
  } else if (words.name == "factor") {
    expect_count(text, words, 1, 2);
    policy.rule = Rule::factor;
    policy.factor = number(text, v[0], 0, 1e6);
    policy.commit_last_failing = v.size() > 1;
    require(v.size() == 1 || v[1] == "upstream", ErrorCode::usage,
            "`decode` {}: expected 'upstream' or nothing behind the factor", base::printable(text));
  } else if (words.name == "hierarchy") {
    expect_count(text, words, 2, 2);
    policy.rule = Rule::hierarchy;
    policy.threshold = number(text, v[0], 0, 2);
    policy.low = number(text, v[1], 0, 2);
    require(
        policy.low < policy.threshold, ErrorCode::usage,
        "`decode` {}: LOW {} changes nothing where all above T {} is committed anyway; expected "
        "hierarchy:T,LOW with LOW below T",
        base::printable(text), policy.low, policy.threshold);
  } else if (words.name == "credit") {
    expect_count(text, words, 1, 4);
    policy.rule = Rule::credit;
    policy.threshold = number(text, v[0], 0, 2);
    if (v.size() > 1) policy.alpha = number(text, v[1], 0, 1e6);
    if (v.size() > 2) policy.gamma = number(text, v[2], 0, 1e6);
    if (v.size() > 3) policy.beta = number(text, v[3], 0, 1);
  } else if (words.name == "canvas") {
    policy.rule = Rule::canvas;
    const size_t colon = text.find(':');
    read_canvas(text, colon == std::string::npos ? "" : text.substr(colon + 1), policy.canvas);
  } else if (words.name == "edit") {
    read_edit(text, words, policy);
  } else {
    fail(ErrorCode::usage, "`decode` {} is not known; known are {}", base::printable(text), kRules);
  }
}

void check_policy(const DecodingPolicy& p, bool block_causal) {
  require(p.block >= 1, ErrorCode::usage, "a block of {} tokens; expected 1 or more", p.block);
  if (p.denoises()) return check_canvas_policy(p);
  // Smaller temperatures may overflow the scaled logits.
  require(p.temperature == 0 || (p.temperature >= 1e-6 && p.temperature <= 100), ErrorCode::usage,
          "temperature {}; expected 0 (greedy), or 0.000001 to 100", p.temperature);
  require(p.top_k >= 0, ErrorCode::usage, "top_k {}; expected 0 (all tokens) or more", p.top_k);
  require(p.top_p > 0 && p.top_p <= 1, ErrorCode::usage,
          "top_p {}; expected a probability above 0, up to 1 (all tokens)", p.top_p);
  require(p.temperature > 0 || (p.top_k == 0 && p.top_p == 1), ErrorCode::usage,
          "{} chooses what is drawn from, and temperature 0 draws nothing: add a temperature "
          "(`temperature` 0.8), or leave it out",
          p.top_k > 0 ? "top_k" : "top_p");
  require(p.repetition_penalty >= kLeastPenalty && p.repetition_penalty <= kMostPenalty,
          ErrorCode::usage, "repetition_penalty {}; expected {} to {}, 1 for none",
          p.repetition_penalty, kLeastPenalty, kMostPenalty);
  require(p.steps >= 0 && p.steps <= p.block, ErrorCode::usage,
          "{} steps for a block of {} tokens: every pass commits at least one; use at most {}",
          p.steps, p.block, p.block);
  const KvCache cache = p.cache.kind;
  if (block_causal)
    require(cache == KvCache::none || cache == KvCache::block, ErrorCode::usage,
            "this model is block-causal: its caches are none and block, where nothing is stale");
  else
    require(cache != KvCache::block, ErrorCode::usage,
            "this model is bidirectional: its caches are none, prefix, dual and vicinity");
  require(p.steps == 0 || p.rule == Rule::steps || p.rule == Rule::threshold || p.edits(),
          ErrorCode::usage,
          "a schedule of steps goes with steps, threshold and edit only; leave `steps` out");
  require(!p.edits() || block_causal, ErrorCode::usage,
          "edit replaces what stands in a block until the block settles, which block-causal models "
          "are made for; this one is bidirectional: choose threshold:T");
}

}  // namespace sample

CachePolicy parse_cache(const std::string& text) {
  using K = KvCache;
  for (const K kind : {K::automatic, K::none, K::prefix, K::dual, K::block})
    if (text == word_of(kind)) return {kind};
  const sample::Words words = sample::split(text);
  require(words.name == word_of(K::vicinity), ErrorCode::usage,
          "cache {} is not known; known are auto, none, prefix, dual, block and "
          "vicinity:BEFORE,AFTER,WARMUP",
          base::printable(text));
  sample::expect_count(text, words, 3, 3);
  return {K::vicinity, sample::whole(text, words.values[0], 0),
          sample::whole(text, words.values[1], 0), sample::whole(text, words.values[2], 0)};
}

}  // namespace tessera
