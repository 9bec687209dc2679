#include "sample/unmasking_policies.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "ops/sampling.h"
#include "sample/levenshtein_rule.h"
#include "sample/numbered_draws.h"
#include "tensor/scope.h"

namespace tessera::sample {
namespace {

using Rule = DecodingPolicy::Rule;
using tensor::Tensor;

// A row of logits on the host.
std::span<float> row_of(const Tensor& logits, size_t i) {
  return {logits.row<float>(int64_t(i)), size_t(logits.size(1))};
}

// A writable copy on the host.
Tensor copied(const Tensor& logits) {
  const Tensor copy = Tensor::empty(logits.shape(), logits.dtype());
  tensor::copy_into(copy, logits);
  return copy;
}

double gumbel(uint64_t draw, uint64_t token) {
  const double uniform = (double(mixed(mixed(draw) ^ token) >> 11) + 0.5) * 0x1p-53;
  return -std::log(-std::log(uniform));
}

// Positions by falling confidence; ties: the lowest.
std::vector<size_t> by_confidence(const std::vector<Prediction>& candidates) {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return candidates[a].confidence > candidates[b].confidence;
  });
  return order;
}

std::vector<Prediction> picked(const std::vector<Prediction>& candidates, std::vector<bool> flags) {
  std::vector<Prediction> out;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (flags[i]) out.push_back(candidates[i]);
  return out;
}

std::vector<bool> best(const std::vector<size_t>& order, size_t count) {
  std::vector<bool> flags(order.size());
  for (size_t i = 0; i < std::min(count, order.size()); ++i) flags[order[i]] = true;
  return flags;
}

class StatelessRule : public UnmaskingPolicy {
 public:
  explicit StatelessRule(const DecodingPolicy& policy) : p_(policy) {}
  void begin_block(int64_t masks) override {
    masks_ = masks;
    call_ = 0;
  }
  std::vector<Prediction> choose(const OpenLogits& in) override { return commits(predicted(in)); }

 protected:
  // Chooses commits from the predictions of the masks.
  std::vector<Prediction> commits(const std::vector<Prediction>& masks) {
    const int64_t call = call_++;
    return picked(masks, chosen(masks, by_confidence(masks), call));
  }
  virtual std::vector<Prediction> predicted(const OpenLogits& in) { return predictions(in, p_); }
  const DecodingPolicy p_;

 private:
  std::vector<bool> chosen(const std::vector<Prediction>& candidates,
                           const std::vector<size_t>& order, int64_t call) const {
    switch (p_.rule) {
      case Rule::steps:
        return best(order, size_t(std::max<int64_t>(1, share_of(masks_, p_.steps, call))));
      case Rule::factor: return best(order, factor_prefix(candidates, order));
      case Rule::hierarchy: return hierarchy(candidates, order);
      default: return p_.steps > 0 ? scheduled(candidates, order, call) : surest(candidates, order);
    }
  }
  std::vector<bool> surest(const std::vector<Prediction>& candidates,
                           const std::vector<size_t>& order) const {
    std::vector<bool> out = best(order, 1);
    for (size_t i = 0; i < candidates.size(); ++i)
      if (candidates[i].confidence >= p_.threshold) out[i] = true;
    return out;
  }
  // LLaDA2: all tokens above the threshold, if they reach this step's share, else the share.
  std::vector<bool> scheduled(const std::vector<Prediction>& candidates,
                              const std::vector<size_t>& order, int64_t call) const {
    const auto share = size_t(std::max<int64_t>(1, share_of(p_.block, p_.steps, call)));
    std::vector<bool> out(candidates.size());
    for (size_t i = 0; i < candidates.size(); ++i) out[i] = candidates[i].confidence > p_.threshold;
    if (size_t(std::count(out.begin(), out.end(), true)) >= share) return out;
    return best(order, share);
  }
  size_t factor_prefix(const std::vector<Prediction>& candidates,
                       const std::vector<size_t>& order) const {
    size_t n = 1;
    while (n < order.size() && candidates[order[n]].confidence >= 1 - p_.factor / double(n + 2))
      ++n;
    if (p_.commit_last_failing && n + 1 == order.size()) ++n;
    return n;
  }
  std::vector<bool> hierarchy(const std::vector<Prediction>& candidates,
                              const std::vector<size_t>& order) const {
    std::vector<bool> out = best(order, 1);
    for (size_t i = 0; i < candidates.size();) {
      size_t top = i, end = i + 1;
      for (;
           end < candidates.size() && candidates[end].position == candidates[end - 1].position + 1;
           ++end)
        if (candidates[end].confidence > candidates[top].confidence) top = end;
      if (candidates[top].confidence > p_.low) out[top] = true;
      i = end;
    }
    for (size_t i = 0; i < candidates.size(); ++i)
      if (candidates[i].confidence > p_.threshold) out[i] = true;
    return out;
  }

  int64_t masks_ = 0, call_ = 0;
};

// Adds a credit to the logits of tokens predicted at a position in earlier passes of the block.
class CreditRule : public StatelessRule {
 public:
  using StatelessRule::StatelessRule;
  void begin_block(int64_t masks) override {
    StatelessRule::begin_block(masks);
    credit_.clear();
  }

 protected:
  std::vector<Prediction> predicted(const OpenLogits& in) override {
    for (auto& [at, tokens] : credit_)
      for (auto& [token, value] : tokens) value *= p_.beta;
    OpenLogits with = in;
    with.logits = copied(in.logits);
    for (size_t i = 0; i < in.positions.size(); ++i) {
      const std::span<float> logits = row_of(with.logits, i);
      const auto raw = predict(logits, in.mask);
      auto& tokens = credit_[in.positions[i]];
      tokens[raw.token] += std::pow(raw.confidence, p_.gamma);
      for (const auto& [token, value] : tokens)
        logits[size_t(token)] += static_cast<float>(p_.alpha * std::log1p(value));
    }
    return StatelessRule::predicted(with);
  }

 private:
  std::map<int64_t, std::map<int32_t, double>> credit_;  // by position and token
};

// Fills masks by schedule and threshold; replaces tokens if another token has enough confidence.
class EditRule : public StatelessRule {
 public:
  using StatelessRule::StatelessRule;
  std::vector<Prediction> choose(const OpenLogits& in) override {
    const auto candidates = predicted(in);
    std::vector<Prediction> masks, out;
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (in.held[i] == in.mask)
        masks.push_back(candidates[i]);
      else if (candidates[i].token != in.held[i] && candidates[i].confidence > p_.editing)
        out.push_back(candidates[i]);
    }
    const auto commits_of_masks = commits(masks);
    out.insert(out.end(), commits_of_masks.begin(), commits_of_masks.end());
    std::ranges::sort(out, {}, &Prediction::position);
    return out;
  }
};

// Wraps a rule and lowers the logits of tokens already in the text.
class PenalisedRule : public UnmaskingPolicy {
 public:
  PenalisedRule(double penalty, std::unique_ptr<UnmaskingPolicy> rule)
      : penalty_(static_cast<float>(penalty)), rule_(std::move(rule)) {}
  void begin_block(int64_t masks) override { rule_->begin_block(masks); }
  std::optional<bool> goes_on() const override { return rule_->goes_on(); }
  std::vector<Prediction> choose(const OpenLogits& in) override {
    std::map<int32_t, int64_t> counts;
    for (const int32_t token : in.said) ++counts[token];
    OpenLogits with = in;
    with.logits = copied(in.logits);
    for (size_t i = 0; i < in.positions.size(); ++i)
      for (const auto& [token, times] : counts) {
        if (times == 1 && in.held[i] == token) continue;  // occurs only at this position
        float& logit = row_of(with.logits, i)[size_t(token)];
        logit = logit > 0 ? logit / penalty_ : logit * penalty_;
      }
    return rule_->choose(with);
  }

 private:
  const float penalty_;
  const std::unique_ptr<UnmaskingPolicy> rule_;
};

std::unique_ptr<UnmaskingPolicy> plain_policy(const DecodingPolicy& policy,
                                              const SpecialIds& special) {
  if (policy.edits() && special.edits_length()) return levenshtein_rule(policy, special);
  if (policy.rule == Rule::credit) return std::make_unique<CreditRule>(policy);
  if (policy.edits()) return std::make_unique<EditRule>(policy);
  return std::make_unique<StatelessRule>(policy);
}

// Draws among `candidates`, in rising order, or among all tokens; never the mask.
int32_t drawn_token(std::span<const float> logits, int32_t mask, const Draw& draw,
                    const std::vector<int32_t>* candidates) {
  double favour = -std::numeric_limits<double>::infinity();
  int32_t token = 0;
  const size_t count = candidates ? candidates->size() : logits.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t v = candidates ? size_t((*candidates)[i]) : i;
    if (int32_t(v) == mask) continue;
    const double value = double(logits[v]) / draw.temperature + gumbel(draw.number, v);
    if (value > favour) {
      favour = value;
      token = int32_t(v);
    }
  }
  return token;
}

}  // namespace

std::vector<int32_t> drawn_from(std::span<const float> logits, int32_t mask, const Draw& draw) {
  std::vector<int32_t> ids;
  for (size_t v = 0; v < logits.size(); ++v)
    if (int32_t(v) != mask) ids.push_back(int32_t(v));
  const auto likelier = [&](int32_t a, int32_t b) {
    const float left = logits[size_t(a)], right = logits[size_t(b)];
    return left != right ? left > right : a < b;
  };
  if (draw.top_k > 0 && size_t(draw.top_k) < ids.size()) {
    std::nth_element(ids.begin(), ids.begin() + draw.top_k, ids.end(), likelier);
    ids.resize(size_t(draw.top_k));
  }
  if (draw.top_p < 1) {
    const double top = logits[size_t(*std::min_element(ids.begin(), ids.end(), likelier))];
    const auto weight = [&](int32_t id) {
      return std::exp((double(logits[size_t(id)]) - top) / draw.temperature);
    };
    double target = 0, sum = 0;
    for (const int32_t id : ids) target += weight(id);
    target *= draw.top_p;
    size_t count = 0, sorted = 0;
    for (size_t next = 64; count < ids.size() && sum < target; next *= 8) {
      const size_t end = std::min(next, ids.size());
      std::partial_sort(ids.begin() + int64_t(sorted), ids.begin() + int64_t(end), ids.end(),
                        likelier);
      for (sorted = end; count < sorted && sum < target; ++count) sum += weight(ids[count]);
    }
    ids.resize(std::max<size_t>(count, 1));
  }
  std::ranges::sort(ids);
  return ids;
}

Prediction predict(std::span<const float> logits, int32_t mask, const Draw& draw) {
  const ops::Peak peak = ops::peak(logits, mask);
  Prediction out;
  if (draw.temperature <= 0) {
    out.token = int32_t(peak.index);
  } else if (draw.top_k > 0 || draw.top_p < 1) {
    const std::vector<int32_t> candidates = drawn_from(logits, mask, draw);
    out.token = drawn_token(logits, mask, draw, &candidates);
  } else {
    out.token = drawn_token(logits, mask, draw, nullptr);
  }
  out.confidence = std::exp(double(logits[size_t(out.token)]) - double(peak.largest)) / peak.sum;
  return out;
}

int64_t share_of(int64_t count, int64_t parts, int64_t index) {
  if (index >= parts) return 0;
  return count / parts + (index < count % parts ? 1 : 0);
}

std::vector<Prediction> predictions(const OpenLogits& in, const DecodingPolicy& policy) {
  std::vector<Prediction> candidates(in.positions.size());
  if (policy.temperature <= 0) {  // no copy of the logits
    const auto peaks = ops::peaks(in.logits, in.mask);
    for (size_t i = 0; i < candidates.size(); ++i)
      candidates[i] = {in.positions[i], int32_t(peaks[i].index), 1 / peaks[i].sum};
    return candidates;
  }
  const Tensor here = in.logits.to(tensor::Device::cpu);
  tensor::parallel_for(int64_t(candidates.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = size_t(begin); i < size_t(end); ++i) {
      const uint64_t draw =
          mixed(policy.seed) ^ mixed(uint64_t(in.call) << 32 ^ uint64_t(in.positions[i]));
      candidates[i] =
          predict(row_of(here, i), in.mask, {policy.temperature, draw, policy.top_k, policy.top_p});
      candidates[i].position = in.positions[i];
    }
  });
  return candidates;
}

std::unique_ptr<UnmaskingPolicy> unmasking_policy(const DecodingPolicy& policy,
                                                  const SpecialIds& special) {
  if (policy.repetition_penalty == 1) return plain_policy(policy, special);
  return std::make_unique<PenalisedRule>(policy.repetition_penalty, plain_policy(policy, special));
}

}  // namespace tessera::sample
