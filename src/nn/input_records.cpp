#include "nn/input_records.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/fail.h"

namespace tessera::nn {
namespace {

using ops::Tensor;

constexpr int64_t kOffered = 8;  // rows of a call that may be kept

}  // namespace

std::string input_scale_of(const std::string& weight) { return weight + "_input_scale"; }

void InputRecord::see(const Tensor& x) {
  if (x.is_meta() || x.elements() == 0) return;
  const int64_t tokens = x.size(0), k = x.size(1);
  const std::vector<float> values = x.to(tensor::Device::cpu).contiguous().to_floats();
  const std::lock_guard lock(mutex_);
  if (largest_.empty()) largest_.assign(static_cast<size_t>(k), 0.0f);
  require(static_cast<int64_t>(largest_.size()) == k, ErrorCode::usage,
          "a product has inputs of {} and of {} channels", largest_.size(), k);
  for (size_t at = 0; at < values.size();)
    for (float& most : largest_) most = std::max(most, std::fabs(values[at++]));
  const int64_t offered = std::min(tokens, kOffered);
  for (int64_t i = 0; i < offered; ++i, ++offered_) {
    const uint64_t place = offered_ < uint64_t{kRows} ? offered_ : draws_() % (offered_ + 1);
    if (place >= uint64_t{kRows}) continue;
    const auto width = static_cast<size_t>(k), to = static_cast<size_t>(place) * width;
    rows_.resize(std::max(rows_.size(), to + width));
    std::copy_n(values.begin() + (tokens * i / offered) * k, k,
                rows_.begin() + static_cast<std::ptrdiff_t>(to));
  }
}

Tensor InputRecord::largest() const {
  const std::lock_guard lock(mutex_);
  if (largest_.empty()) return {};
  return Tensor::from(std::span<const float>(largest_), {static_cast<int64_t>(largest_.size())});
}

Tensor InputRecord::rows() const {
  const std::lock_guard lock(mutex_);
  if (largest_.empty()) return {};
  const auto k = static_cast<int64_t>(largest_.size());
  return Tensor::from(std::span<const float>(rows_), {static_cast<int64_t>(rows_.size()) / k, k});
}

std::shared_ptr<InputRecord> InputRecords::of(const std::string& weight) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<InputRecord>& record = records_[weight];
  if (!record) record = std::make_shared<InputRecord>();
  return record;
}

std::shared_ptr<InputRecord> InputRecords::find(const std::string& weight) const {
  const std::lock_guard lock(mutex_);
  const auto it = records_.find(weight);
  return it == records_.end() ? nullptr : it->second;
}

}  // namespace tessera::nn
