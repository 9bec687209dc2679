#include "parallel/reuse/taylor.h"

#include <utility>

#include "ops/elementwise.h"

namespace tessera::parallel {

using tensor::Tensor;

void Taylor::update(const Tensor& value, int step) {
  const std::vector<Tensor> before = std::exchange(factors_, {value});
  const float scale = 1.0f / static_cast<float>(step - std::exchange(last_, step));
  if (step < first_) return;
  for (size_t k = 0; k < before.size() && k < static_cast<size_t>(order_); ++k)
    factors_.push_back(ops::blend(factors_[k], scale, before[k], -scale));
}

Tensor Taylor::at(int step) const {
  Tensor sum = factors_.front();
  double by = 1;
  for (size_t k = 1; k < factors_.size(); ++k) {
    by *= double(step - last_) / double(k);
    sum = ops::blend(sum, 1, factors_[k], static_cast<float>(by));
  }
  return sum;
}

}  // namespace tessera::parallel
