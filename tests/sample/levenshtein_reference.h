#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "sample/decoding_policy.h"

namespace tessera::sample {

/// Logits as a function of a block: noise, with some preference for current tokens, and with a
/// given rate of length edits.
struct RandomModel {
  uint32_t seed = 0;
  int32_t vocabulary = 20;
  double sharpness = 1, edits = 0;

  std::vector<std::vector<float>> operator()(const std::vector<int32_t>& block,
                                             const SpecialIds& special) const {
    std::vector<uint32_t> words(block.begin(), block.end());
    words.push_back(seed);
    std::seed_seq of_block(words.begin(), words.end());
    std::mt19937 draw(of_block);
    const auto uniform = [&] { return double(draw() >> 8) / double(1 << 24); };
    std::vector<std::vector<float>> logits(block.size());
    for (size_t i = 0; i < block.size(); ++i) {
      for (int32_t v = 0; v < vocabulary; ++v)
        logits[i].push_back(float(sharpness * (uniform() + uniform() + uniform() - 1.5) * 2));
      if (uniform() < edits) logits[i][size_t(special.remove)] += float(4 * sharpness);
      if (uniform() < edits) logits[i][size_t(special.split)] += float(4 * sharpness);
      if (uniform() < 0.4 && block[i] != special.mask)
        logits[i][size_t(block[i])] += float(5 * sharpness);
    }
    return logits;
  }
};

struct PlainResult {
  std::vector<int32_t> block;
  std::vector<double> confidence;
  int passes = 0;
};

/// levenshtein_rule() literally, position by position, over a block after `prompt` tokens.
class PlainLevenshtein {
 public:
  PlainLevenshtein(const std::vector<int32_t>& begin, size_t prompt, const RandomModel& model,
                   const DecodingPolicy& policy, const SpecialIds& special)
      : prompt_(prompt),
        first_masks_(std::count(begin.begin(), begin.end(), special.mask)),
        steps_(policy.steps > 0 ? policy.steps : policy.block),
        model_(model),
        p_(policy),
        special_(special) {
    for (const int32_t token : begin) at_.push_back({token, 0, token == special.mask});
  }

  PlainResult run() {
    while (!pass()) ++passes_;
    PlainResult result{tokens(at_), {}, passes_ + 1};
    for (const Place& one : at_) result.confidence.push_back(one.sure);
    return result;
  }

 private:
  struct Word {
    int32_t token = 0;
    double sure = 0;
  };
  struct Place {
    int32_t token = 0;
    double sure = 0;
    bool first = false;  // an original mask of the block
    void say(const Word& word) {
      token = word.token;
      sure = word.sure;
    }
  };

  static std::vector<int32_t> tokens(const std::vector<Place>& of) {
    std::vector<int32_t> ids;
    for (const Place& one : of) ids.push_back(one.token);
    return ids;
  }

  Word word(size_t i, std::set<int32_t> but) const {
    but.insert(special_.mask);
    const std::vector<float>& logits = logits_[i];
    double whole = 0;
    int32_t best = -1;
    for (int32_t v = 0; v < model_.vocabulary; ++v) {
      if (v != special_.mask) whole += std::exp(double(logits[size_t(v)]));
      if (!but.contains(v) && (best < 0 || logits[size_t(v)] > logits[size_t(best)])) best = v;
    }
    return {best, std::exp(double(logits[size_t(best)])) / whole};
  }

  // Masks to fill, the surest first.
  std::vector<size_t> filled(const std::vector<size_t>& masks, int64_t first_left) const {
    if (passes_ >= steps_) return masks;
    std::vector<size_t> chosen;
    for (const size_t i : masks)
      if (words_[i].sure > p_.threshold) chosen.push_back(i);
    const int64_t share = first_masks_ / steps_ + (passes_ < first_masks_ % steps_ ? 1 : 0);
    const int64_t need = share + int64_t(masks.size()) - first_left;
    if (int64_t(chosen.size()) >= need) return chosen;
    return {masks.begin(), masks.begin() + std::min<int64_t>(need, int64_t(masks.size()))};
  }

  void escape(std::vector<Place>& now) const {
    std::map<size_t, std::set<int32_t>> tried;
    for (int n = 0; n < 5 && said_.contains(tokens(now)); ++n) {
      std::vector<size_t> changed;
      for (size_t i = prompt_; i < at_.size(); ++i)
        if (now[i].token != at_[i].token) changed.push_back(i);
      if (changed.empty()) return;
      const size_t i =
          *std::ranges::min_element(changed, {}, [&](size_t c) { return words_[c].sure; });
      tried[i].insert(now[i].token);
      now[i].say(word(i, tried[i]));
    }
  }

  std::vector<Place> with_lengths(const std::vector<Place>& now) const {
    const Place mask{special_.mask, 0, false};
    std::vector<Place> next(now.begin(), now.begin() + int64_t(prompt_));
    for (size_t i = prompt_; i < now.size(); ++i) {
      if (now[i].token == special_.remove) continue;
      if (now[i].token == special_.split) next.push_back(mask);
      next.push_back(now[i].token == special_.split ? at_[i] : now[i]);
    }
    next.resize(at_.size(), mask);
    return next;
  }

  // Whether the block has ended.
  bool pass() {
    logits_ = model_(tokens(at_), special_);
    words_.clear();
    std::vector<size_t> masks;
    int64_t first_left = 0;
    for (size_t i = 0; i < at_.size(); ++i) {
      words_.push_back(word(i, {}));
      if (i < prompt_ || at_[i].token != special_.mask) continue;
      masks.push_back(i);
      first_left += at_[i].first;
    }
    std::ranges::stable_sort(masks, std::greater(), [&](size_t i) { return words_[i].sure; });
    without_first_ = first_left == 0 ? without_first_ + 1 : 0;
    std::vector<size_t> chosen = filled(masks, first_left);
    for (size_t i = prompt_; i < at_.size(); ++i)
      if (at_[i].token != special_.mask && words_[i].token != at_[i].token &&
          words_[i].sure > p_.editing)
        chosen.push_back(i);
    if (chosen.empty()) chosen = masks;
    std::set<size_t> written(chosen.begin(), chosen.end());
    const bool fills_first =
        std::ranges::all_of(masks, [&](size_t i) { return !at_[i].first || written.contains(i); });
    const bool last = passes_ == 999 || (p_.posts > 0 ? without_first_ >= p_.posts : fills_first);
    if (last) written.insert(masks.begin(), masks.end());
    std::vector<Place> now = at_;
    for (const size_t i : written) {
      const bool edit = words_[i].token == special_.remove || words_[i].token == special_.split;
      now[i].say(last && edit ? word(i, {special_.remove, special_.split}) : words_[i]);
    }
    if (!last) escape(now);
    said_.insert(tokens(now));
    const std::vector<Place> next = with_lengths(now);
    const bool still = masks.empty() && tokens(next) == tokens(at_);
    at_ = next;
    return last || still;
  }

  const size_t prompt_;
  const int64_t first_masks_, steps_;
  const RandomModel model_;
  const DecodingPolicy p_;
  const SpecialIds special_;
  std::vector<Place> at_;
  std::vector<std::vector<float>> logits_;
  std::vector<Word> words_;  // the likeliest of each position
  std::set<std::vector<int32_t>> said_;
  int passes_ = 0, without_first_ = 0;
};

}  // namespace tessera::sample
