#include "sample/canvas_walk.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/fail.h"
#include "ops/elementwise.h"
#include "sample/numbered_draws.h"
#include "tensor/scope.h"

namespace tessera::sample {
namespace {

using tensor::Tensor;

// Softmax of scaled logits at a position.
struct Position {
  double entropy = 0;
  int32_t best = 0, drawn = 0;
  double best_share = 0, drawn_share = 0;
};

// `uniform` below 0: the likeliest token is drawn.
Position look_at(std::span<const float> logits, double uniform) {
  Position p;
  const auto best = std::max_element(logits.begin(), logits.end());
  p.best = p.drawn = static_cast<int32_t>(best - logits.begin());
  double sum = 0, weighted = 0;
  for (const float x : logits) {
    const double below = double(x) - double(*best), part = std::exp(below);
    sum += part;
    weighted += part * below;
  }
  p.entropy = std::log(sum) - weighted / sum;
  p.best_share = p.drawn_share = 1 / sum;
  if (uniform < 0) return p;
  double left = uniform * sum;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double part = std::exp(double(logits[i]) - double(*best));
    left -= part;
    if (left >= 0 && i + 1 < logits.size()) continue;
    p.drawn = static_cast<int32_t>(i);
    p.drawn_share = part / sum;
    break;
  }
  return p;
}

enum class DrawOf : uint8_t { init, noise, token };

/// Decides passes over the canvases of a sequence.
class EntropyBoundRule final : public UnmaskingPolicy {
 public:
  explicit EntropyBoundRule(const DecodingPolicy& policy)
      : rule_(policy.canvas), seed_(policy.seed), tokens_(policy.block) {}

  void begin_block(int64_t) override {
    ++canvas_;
    step_ = 0;
    finished_ = false;
    answers_.clear();
    accepted_.clear();
    logits_ = {};
  }
  // The first, random tokens of a canvas.
  std::vector<int32_t> first() {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < tokens_; ++i) ids.push_back(fresh(DrawOf::init, i));
    return ids;
  }
  std::vector<Prediction> choose(const OpenLogits& in) override;
  std::optional<bool> goes_on() const override { return !finished_; }
  // Scaled logits of the previous pass over the whole canvas; undefined at the first pass.
  const Tensor& earlier() const { return logits_; }
  // By token of the canvas, in the previous pass; empty at the first pass.
  const std::vector<bool>& accepted() const { return accepted_; }

 private:
  const Tensor& stored(DrawOf of) const {
    return of == DrawOf::init ? draws().init : draws().noise;
  }
  const CanvasDraws& draws() const { return *rule_.draws; }
  int64_t stored_row(DrawOf of) const {
    const int64_t row = of == DrawOf::init ? canvas_ : pass_;
    require(row < stored(of).size(0), ErrorCode::usage,
            "the draws are those of {} {}, and one more is needed", stored(of).size(0),
            of == DrawOf::init ? "canvases" : "passes");
    return row;
  }
  double uniform(DrawOf of, int64_t position) const {
    return uniform_of(
        {seed_, uint64_t(canvas_), uint64_t(step_), uint64_t(position), uint64_t(of)});
  }
  int32_t fresh(DrawOf of, int64_t position) const {
    if (rule_.draws) return stored(of).row<int32_t>(stored_row(of))[position];
    return std::min(int32_t(uniform(of, position) * rule_.vocabulary), rule_.vocabulary - 1);
  }
  double of_token(int64_t position) const {
    if (!rule_.draws) return uniform(DrawOf::token, position);
    if (!draws().uniform.defined()) return -1;
    return double(draws().uniform.row<float>(stored_row(DrawOf::noise))[position]);
  }
  bool stable(const std::vector<int32_t>& best) const {
    const auto count = static_cast<size_t>(rule_.stability_threshold);
    return answers_.size() >= count &&
           std::all_of(answers_.end() - int64_t(count), answers_.end(),
                       [&](const auto& answer) { return answer == best; });
  }
  std::vector<bool> surest(const std::vector<Position>& candidates) const;

  const CanvasRule rule_;
  const uint64_t seed_;
  const int64_t tokens_;
  int64_t canvas_ = -1, pass_ = 0;
  int step_ = 0;
  bool finished_ = false;
  std::vector<std::vector<int32_t>> answers_;  // likeliest tokens, pass by pass
  std::vector<bool> accepted_;
  Tensor logits_;
};

// The surest positions, as long as the entropies before each sum to no more than the bound.
std::vector<bool> EntropyBoundRule::surest(const std::vector<Position>& candidates) const {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return candidates[a].entropy < candidates[b].entropy;
  });
  std::vector<bool> accepted(candidates.size());
  double before = 0;
  for (const size_t i : order) {
    if (before > rule_.entropy_bound) break;
    accepted[i] = true;
    before += candidates[i].entropy;
  }
  return accepted;
}

std::vector<Prediction> EntropyBoundRule::choose(const OpenLogits& in) {
  const Tensor host = in.logits.to(tensor::Device::cpu);
  logits_ = ops::scale(host, 1, static_cast<float>(temperature_of(rule_, step_)));
  std::vector<Position> candidates(in.positions.size());
  std::vector<double> uniforms(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) uniforms[i] = of_token(int64_t(i));
  tensor::parallel_for(int64_t(candidates.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      candidates[size_t(i)] =
          look_at({logits_.row<float>(i), size_t(logits_.size(1))}, uniforms[size_t(i)]);
  });
  accepted_ = surest(candidates);
  const std::vector<bool>& accepted = accepted_;
  std::vector<int32_t> best;
  double mean = 0;
  for (const Position& p : candidates) {
    best.push_back(p.best);
    mean += p.entropy / double(candidates.size());
  }
  const bool settled = stable(best) && mean < rule_.confidence_threshold;
  finished_ = settled || step_ + 1 == rule_.max_denoising_steps;
  std::vector<Prediction> predictions;
  for (size_t i = 0; i < candidates.size(); ++i) {
    Prediction p{.position = in.positions[i]};
    p.accepted = accepted[i];
    p.noise = !finished_ && !accepted[i];
    p.token = finished_     ? best[i]
              : accepted[i] ? candidates[i].drawn
                            : fresh(DrawOf::noise, int64_t(i));
    p.confidence = finished_     ? candidates[i].best_share
                   : accepted[i] ? candidates[i].drawn_share
                                 : 0;
    predictions.push_back(p);
  }
  answers_.push_back(std::move(best));
  if (std::ssize(answers_) > rule_.stability_threshold) answers_.erase(answers_.begin());
  ++step_;
  ++pass_;
  return predictions;
}

class CanvasWalk final : public BlockWalk {
 public:
  CanvasWalk(const std::vector<int32_t>& prompt, int64_t max_tokens, const DecodingPolicy& policy,
             const SpecialIds& special, int64_t cached_tokens)
      : BlockWalk(prompt, max_tokens, policy, special, true,
                  std::make_unique<EntropyBoundRule>(policy)),
        kept_(cached_tokens) {
    if (policy_.as_published) limit_ = int64_t(ids_.size()) - prompt_;
    block_ = {prompt_, prompt_ + policy_.block};
    open_ = true;
    begin();
  }

  int64_t kept() const override { return kept_; }
  const Tensor* earlier() const override {
    return own().earlier().defined() ? &own().earlier() : nullptr;
  }

  std::vector<Range> undecided(Range range) const override {
    const auto& accepted = own().accepted();
    if (accepted.empty()) return {range};
    return runs_where(range, [&](int64_t i) { return !accepted[size_t(i - block_.begin)]; });
  }

  std::optional<Pass> next() override {
    if (done_) return {};
    if (kept_ < block_.begin) {
      const PassKind kind = block_.begin == prompt_ ? PassKind::prefill : PassKind::finalise;
      return Pass{kind, {kept_, block_.begin}, {}, block_.begin};
    }
    return Pass{PassKind::block, block_, block_, block_.end};
  }

  void commit(const Pass& pass, const std::vector<Prediction>& choices) override {
    if (pass.kind != PassKind::block) {
      kept_ = pass.ids.end;
      return;
    }
    write(choices);
    open_ = *own().goes_on();
    if (open_) return;
    const bool ended = policy_.stop != StopAtEos::none && first_end(block_) != block_.end;
    done_ = ended || block_.end == int64_t(ids_.size());
    if (done_) return;
    block_ = {block_.end, block_.end + policy_.block};
    open_ = true;
    begin();
  }

 private:
  EntropyBoundRule& own() const { return static_cast<EntropyBoundRule&>(*rule_); }
  void begin() {
    own().begin_block(block_.size());
    std::ranges::copy(own().first(), ids_.begin() + block_.begin);
  }

  int64_t kept_;  // tokens with cached keys and values of text
};

}  // namespace

std::unique_ptr<BlockWalk> canvas_walk(const std::vector<int32_t>& prompt, int64_t max_tokens,
                                       const DecodingPolicy& policy, const SpecialIds& special,
                                       int64_t cached_tokens) {
  require(policy.canvas.vocabulary > 0, ErrorCode::usage,
          "a canvas is drawn from a vocabulary; its size is missing");
  require(!prompt.empty(), ErrorCode::usage, "a canvas needs a prompt of one token or more");
  require(cached_tokens >= 0 && cached_tokens <= int64_t(prompt.size()), ErrorCode::usage,
          "{} tokens are kept of a prompt of {}", cached_tokens, prompt.size());
  if (policy.canvas.draws)
    check_draws(*policy.canvas.draws, policy.block, policy.canvas.vocabulary);
  return std::make_unique<CanvasWalk>(prompt, max_tokens, policy, special, cached_tokens);
}

}  // namespace tessera::sample
