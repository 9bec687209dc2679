#include "load/held_weights.h"

#include <fmt/format.h>

namespace tessera::load {

using tensor::name_of;
using tensor::Shape;
using tensor::Tensor;

template <class Make>
auto HeldWeights::held(const std::string& key, const Make& make) const -> decltype(make()) {
  const std::lock_guard lock(held_->mutex);
  std::any& slot = held_->all[key];
  if (!slot.has_value()) slot = make();
  return std::any_cast<decltype(make())>(slot);
}

Tensor HeldWeights::get(const std::string& name, const Shape& shape) const {
  return held(fmt::format("{} {}", name, shape.str()), [&] { return from_->get(name, shape); });
}

ops::Weight HeldWeights::matrix(const std::string& name, int64_t n, int64_t k, ops::DType compute,
                                const nn::Cut& cut) const {
  const auto make = [&] { return from_->matrix(name, n, k, compute, cut); };
  if (!cut.whole()) return make();
  return held(fmt::format("{} matrix {} {} {}", name, n, k, name_of(compute)), make);
}

ops::Weight HeldWeights::paired(const std::string& gate, const std::string& up, int64_t n,
                                int64_t k, ops::DType compute, const nn::Cut& cut) const {
  const auto make = [&] { return from_->paired(gate, up, n, k, compute, cut); };
  if (!cut.whole()) return make();
  return held(fmt::format("{} {} paired {} {} {}", gate, up, n, k, name_of(compute)), make);
}

ops::ConvWeight HeldWeights::conv(const std::string& weight, const std::string& bias,
                                  const Shape& shape, ops::DType compute) const {
  return held(fmt::format("{} {} conv {} {}", weight, bias, shape.str(), name_of(compute)),
              [&] { return from_->conv(weight, bias, shape, compute); });
}

Tensor HeldWeights::vector(const std::string& name, int64_t n, const nn::Cut& cut) const {
  const auto make = [&] { return from_->vector(name, n, cut); };
  return cut.whole() ? held(fmt::format("{} vector {}", name, n), make) : make();
}

}  // namespace tessera::load
