#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "nn/weights.h"

namespace tessera::nn {

/// Forwards every request to other weights; subclasses answer some themselves.
class WeightsOver : public Weights {
 public:
  explicit WeightsOver(std::shared_ptr<const Weights> base) : base_(std::move(base)) {}

  Shard shard() const override { return base_->shard(); }
  bool has(const std::string& name) const override { return base_->has(name); }
  bool smoothed(const std::string& weight) const override { return base_->smoothed(weight); }
  std::shared_ptr<InputRecord> record(const std::string& weight) const override {
    return base_->record(weight);
  }
  FetchedWeight fetch(const WeightRequest& request) const override { return base_->fetch(request); }

 protected:
  const std::shared_ptr<const Weights> base_;
};

/// Weights with the names of others, and a function that fetches.
class AnsweredWeights final : public WeightsOver {
 public:
  using Answer = std::function<FetchedWeight(const WeightRequest&)>;
  AnsweredWeights(std::shared_ptr<const Weights> base, Answer answer)
      : WeightsOver(std::move(base)), answer_(std::move(answer)) {}

  FetchedWeight fetch(const WeightRequest& request) const override { return answer_(request); }

 private:
  Answer answer_;
};

}  // namespace tessera::nn
