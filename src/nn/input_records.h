#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "nn/weights_over.h"

namespace tessera::nn {

/// Name of the input scale of a product, f32 [k] beside quantised weights [n, k] in files: inputs
/// are multiplied by it before they are quantised, channel by channel; weights were divided by it
/// (SmoothQuant, Xiao et al. 2023, section 4). Large channels of the inputs become small.
std::string input_scale_of(const std::string& weight);

/// Inputs of a product in calibrating runs. Thread-safe.
class InputRecord {
 public:
  static constexpr int64_t kRows = 64;

  /// Records x [tokens, k]; nothing on meta.
  void see(const ops::Tensor& x);
  /// The largest magnitude of each channel, f32 [k]; undefined without inputs.
  ops::Tensor largest() const;
  /// At most kRows rows, f32 [rows, k], drawn evenly from all calls.
  ops::Tensor rows() const;

 private:
  mutable std::mutex mutex_;
  std::vector<float> largest_, rows_;
  uint64_t offered_ = 0;  // candidates so far
  std::mt19937_64 draws_;
};

/// Records by the name of the weight.
class InputRecords {
 public:
  std::shared_ptr<InputRecord> of(const std::string& weight);
  /// Null for a product that never ran.
  std::shared_ptr<InputRecord> find(const std::string& weight) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<InputRecord>> records_;
};

/// Weights whose layers record their inputs.
class RecordingWeights final : public WeightsOver {
 public:
  RecordingWeights(std::shared_ptr<const Weights> base, std::shared_ptr<InputRecords> records)
      : WeightsOver(std::move(base)), records_(std::move(records)) {}

  std::shared_ptr<InputRecord> record(const std::string& weight) const override {
    return records_->of(weight);
  }

 private:
  std::shared_ptr<InputRecords> records_;
};

}  // namespace tessera::nn
