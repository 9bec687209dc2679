#include "sample/levenshtein_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "ops/sampling.h"

namespace tessera::sample {
namespace {

constexpr int kMostSteps = 1000;  // steps of a block, as released
constexpr int kMostEscapes = 5;

/// The token at a position of the block.
struct Cell {
  int32_t token = 0;
  double confidence = 0;  // when the token was predicted
  bool first = false;     // position of an original mask of the block
};

/// A cell of the next block, with its place in this block.
struct PlacedCell {
  Cell cell;
  size_t from = 0;
  bool moved = false;  // an old token or a new mask, not predicted by this pass
};

class LevenshteinRule : public UnmaskingPolicy {
 public:
  LevenshteinRule(const DecodingPolicy& policy, const SpecialIds& special)
      : p_(policy), special_(special), steps_(policy.steps > 0 ? policy.steps : policy.block) {}

  void begin_block(int64_t masks) override {
    masks_ = masks;
    step_ = posts_ = 0;
    going_ = false;
    cells_.clear();
    seen_.clear();
  }
  std::optional<bool> goes_on() const override { return going_; }

  std::vector<Prediction> choose(const OpenLogits& in) override {
    if (cells_.empty())
      for (const int32_t token : in.held) cells_.push_back({token, 0, token == special_.mask});
    const size_t n = cells_.size();
    const std::vector<Prediction> prediction_of = predictions(in, p_);
    int64_t masks = 0, first = 0;
    for (const Cell& cell : cells_) {
      masks += is_mask(cell);
      first += is_mask(cell) && cell.first;
    }
    posts_ += first == 0;  // permanent, because the mask is never predicted
    std::vector<bool> write = masks_to_fill(prediction_of, masks, masks - first);
    for (size_t i = 0; i < n; ++i)
      if (!is_mask(cells_[i]))
        write[i] =
            prediction_of[i].token != cells_[i].token && prediction_of[i].confidence > p_.editing;
    // If no position is written, the next passes would not write either, until the schedule ends.
    const bool stuck = std::ranges::count(write, true) == 0;
    const bool last = is_last(write, stuck);
    for (size_t i = 0; i < n; ++i) write[i] = write[i] || (is_mask(cells_[i]) && (last || stuck));
    std::vector<Cell> now = cells_;
    for (size_t i = 0; i < n; ++i)
      if (write[i]) say(now[i], prediction_of[i]);
    if (last)
      finish(in, now);
    else
      escape(in, prediction_of, now);
    seen_.insert(tokens_of(now));
    ++step_;
    const std::vector<PlacedCell> block = edited(now, write);
    const std::vector<Cell> before = std::exchange(cells_, {});
    for (const PlacedCell& entry : block) cells_.push_back(entry.cell);
    going_ = !last && (masks > 0 || tokens_of(cells_) != tokens_of(before));
    return changes(in, block, before);
  }

 private:
  bool is_mask(const Cell& cell) const { return cell.token == special_.mask; }
  static std::vector<int32_t> tokens_of(const std::vector<Cell>& cells) {
    std::vector<int32_t> tokens;
    for (const Cell& cell : cells) tokens.push_back(cell.token);
    return tokens;
  }
  static void say(Cell& cell, const Prediction& prediction) {
    cell.token = prediction.token;
    cell.confidence = prediction.confidence;
  }

  // Masks to fill: all above the threshold, if they reach this step's share plus the number of
  // masks added by edits; otherwise this number of the surest masks.
  std::vector<bool> masks_to_fill(const std::vector<Prediction>& prediction_of, int64_t masks,
                                  int64_t added_masks) const {
    std::vector<bool> write(cells_.size());
    std::vector<size_t> surest;
    int64_t sure = 0;
    for (size_t i = 0; i < cells_.size(); ++i) {
      if (!is_mask(cells_[i])) continue;
      surest.push_back(i);
      write[i] = prediction_of[i].confidence > p_.threshold;
      sure += write[i];
    }
    const int64_t need = step_ >= steps_ ? masks : share_of(masks_, steps_, step_) + added_masks;
    if (sure >= need) return write;
    std::stable_sort(surest.begin(), surest.end(), [&](size_t a, size_t b) {
      return prediction_of[a].confidence > prediction_of[b].confidence;
    });
    write.assign(cells_.size(), false);
    for (int64_t k = 0; k < std::min(need, masks); ++k) write[surest[size_t(k)]] = true;
    return write;
  }

  bool is_last(const std::vector<bool>& write, bool stuck) const {
    if (step_ + 1 >= kMostSteps) return true;
    if (p_.posts > 0) return posts_ >= p_.posts;
    for (size_t i = 0; i < cells_.size(); ++i)
      if (is_mask(cells_[i]) && cells_[i].first && !write[i] && !stuck) return false;
    return true;  // even if the last of them fell off the end
  }

  void finish(const OpenLogits& in, std::vector<Cell>& now) const {
    for (size_t i = 0; i < now.size(); ++i)
      if (now[i].token == special_.remove || now[i].token == special_.split)
        say(now[i], said_but(in, i, {special_.remove, special_.split}));
  }

  void escape(const OpenLogits& in, const std::vector<Prediction>& prediction_of,
              std::vector<Cell>& now) const {
    std::map<size_t, std::vector<int32_t>> tokens_tried;  // by position
    for (int tries = 0; tries < kMostEscapes && seen_.contains(tokens_of(now)); ++tries) {
      size_t at = now.size();
      for (size_t i = 0; i < now.size(); ++i)
        if (now[i].token != cells_[i].token &&
            (at == now.size() || prediction_of[i].confidence < prediction_of[at].confidence))
          at = i;
      if (at == now.size()) return;
      tokens_tried[at].push_back(now[at].token);
      say(now[at], said_but(in, at, tokens_tried[at]));
    }
  }

  // The likeliest token of a position except the mask and `tokens`; ties: the lowest id.
  static Prediction said_but(const OpenLogits& in, size_t i, const std::vector<int32_t>& tokens) {
    const auto at = static_cast<int64_t>(i);
    tensor::Tensor row = tensor::Tensor::empty({1, in.logits.size(1)}, tensor::DType::f32);
    tensor::copy_into(row, in.logits.slice(0, at, at + 1));
    const std::span<float> logits(row.data<float>(), static_cast<size_t>(row.size(1)));
    const ops::Peak peak = ops::peak(logits, in.mask);
    for (const int32_t other : tokens)
      logits[static_cast<size_t>(other)] = -std::numeric_limits<float>::infinity();
    const ops::Peak best = ops::peak(logits, in.mask);
    return {in.positions[i], static_cast<int32_t>(best.index),
            std::exp(double(best.largest) - double(peak.largest)) / peak.sum};
  }

  std::vector<PlacedCell> edited(const std::vector<Cell>& now,
                                 const std::vector<bool>& write) const {
    const size_t n = now.size();
    const auto mask = [&](size_t at) { return PlacedCell{{special_.mask, 0, false}, at, true}; };
    std::vector<PlacedCell> block;
    for (size_t i = 0; i < n; ++i) {
      if (now[i].token == special_.remove) continue;
      if (now[i].token == special_.split) {
        block.push_back(mask(i));
        block.push_back({cells_[i], i, true});
      } else {
        block.push_back({now[i], i, !write[i]});
      }
    }
    while (block.size() < n) block.push_back(mask(block.size()));
    block.resize(n);
    return block;
  }

  static std::vector<Prediction> changes(const OpenLogits& in, const std::vector<PlacedCell>& block,
                                         const std::vector<Cell>& before) {
    std::vector<Prediction> out;
    for (size_t i = 0; i < block.size(); ++i) {
      const PlacedCell& entry = block[i];
      if (entry.moved && entry.from == i && entry.cell.token == before[i].token) continue;
      out.push_back({in.positions[i], entry.cell.token, entry.cell.confidence,
                     static_cast<int64_t>(i) - static_cast<int64_t>(entry.from), entry.moved});
    }
    return out;
  }

  const DecodingPolicy p_;
  const SpecialIds special_;
  const int64_t steps_;
  int64_t masks_ = 0;  // masks at the start of the block
  int64_t step_ = 0, posts_ = 0;
  bool going_ = false;
  std::vector<Cell> cells_;
  std::set<std::vector<int32_t>> seen_;  // predicted blocks, before their lengths were edited
};

}  // namespace

std::unique_ptr<UnmaskingPolicy> levenshtein_rule(const DecodingPolicy& policy,
                                                  const SpecialIds& special) {
  return std::make_unique<LevenshteinRule>(policy, special);
}

}  // namespace tessera::sample
