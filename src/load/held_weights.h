#pragma once

#include <any>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "nn/weights.h"

namespace tessera::load {

/// Keeps packed weights in memory for the lifetime of this object or of values(): a complete weight
/// is returned again on the next request, and other users of the same store find the weight there.
/// Thread-safe.
class HeldWeights final : public nn::Weights {
 public:
  explicit HeldWeights(std::shared_ptr<const nn::Weights> from) : from_(std::move(from)) {}

  nn::Shard shard() const override { return from_->shard(); }
  bool has(const std::string& name) const override { return from_->has(name); }
  tensor::Tensor get(const std::string& name, const tensor::Shape& shape) const override;
  ops::Weight matrix(const std::string& name, int64_t n, int64_t k, ops::DType compute,
                     const nn::Cut& cut = {}) const override;
  ops::Weight paired(const std::string& gate, const std::string& up, int64_t n, int64_t k,
                     ops::DType compute, const nn::Cut& cut = {}) const override;
  ops::ConvWeight conv(const std::string& weight, const std::string& bias,
                       const tensor::Shape& shape, ops::DType compute) const override;
  tensor::Tensor vector(const std::string& name, int64_t n, const nn::Cut& cut = {}) const override;

  /// Keeps all weights alive as long as the returned pointer, but not the source with its open
  /// files.
  std::shared_ptr<const void> values() const { return held_; }

 private:
  struct Values {
    std::mutex mutex;
    std::map<std::string, std::any> all;
  };
  template <class Make>
  auto held(const std::string& key, const Make& make) const -> decltype(make());

  const std::shared_ptr<const nn::Weights> from_;
  const std::shared_ptr<Values> held_ = std::make_shared<Values>();
};

}  // namespace tessera::load
