#pragma once

#include <string>

#include "nn/weights.h"

namespace tessera::nn {

/// Weights with a part for a rank: every layer declares its split, and is cut during packing. Must
/// not outlive `whole`.
class ShardedWeights final : public Weights {
 public:
  ShardedWeights(const Weights& whole, const Shard& shard) : whole_(whole), shard_(shard) {}

  Shard shard() const override { return shard_; }
  bool has(const std::string& name) const override { return whole_.has(name); }
  bool smoothed(const std::string& weight) const override { return whole_.smoothed(weight); }
  std::shared_ptr<InputRecord> record(const std::string& weight) const override {
    return whole_.record(weight);
  }
  FetchedWeight fetch(const WeightRequest& request) const override { return whole_.fetch(request); }

 private:
  const Weights& whole_;
  Shard shard_;
};

}  // namespace tessera::nn
