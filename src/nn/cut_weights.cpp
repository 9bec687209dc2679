#include "nn/cut_weights.h"

#include "base/fail.h"

namespace tessera::nn {
namespace {

using tensor::Shape;
using tensor::Tensor;

// Shape with another size of one axis.
Shape resized(const Shape& shape, int axis, int64_t size) {
  std::vector<int64_t> sizes(shape.begin(), shape.end());
  sizes[static_cast<size_t>(axis)] = size;
  return Shape(std::span<const int64_t>(sizes));
}

// The ranges of an axis of a dense tensor, as a new one.
Tensor taken(const Tensor& whole, const Cut& cut, const Shape& shape) {
  Tensor part = Tensor::empty(shape, whole.dtype(), whole.device());
  int64_t at = 0;
  for (const Range& r : cut.ranges) {
    tensor::copy_into(part.slice(cut.axis, at, at + r.size()),
                      whole.slice(cut.axis, r.begin, r.end));
    at += r.size();
  }
  return part;
}

}  // namespace

Tensor CutWeights::get(const std::string& name, const Shape& shape) const {
  const auto cut = cut_(name);
  if (!cut) return whole_.get(name, shape);
  int64_t mine = 0;
  for (const Range& r : cut->ranges) mine += r.size();
  require(cut->axis < shape.rank() && shape[cut->axis] == mine, ErrorCode::usage,
          "tensor '{}': {} of {} on axis {} are this rank's; {} were asked for", name, mine,
          cut->full, cut->axis, shape.str());
  return taken(whole_.get(name, resized(shape, cut->axis, cut->full)), *cut, shape);
}

ops::Weight CutWeights::matrix(const std::string& name, int64_t n, int64_t k,
                               ops::DType compute) const {
  return cut_(name) ? PackingWeights::matrix(name, n, k, compute)
                    : whole_.matrix(name, n, k, compute);
}

ops::Weight CutWeights::paired(const std::string& gate, const std::string& up, int64_t n, int64_t k,
                               ops::DType compute) const {
  return cut_(gate) ? PackingWeights::paired(gate, up, n, k, compute)
                    : whole_.paired(gate, up, n, k, compute);
}

ops::ConvWeight CutWeights::conv(const std::string& weight, const std::string& bias,
                                 const Shape& shape, ops::DType compute) const {
  require(!cut_(weight), ErrorCode::usage, "filter '{}' cannot be split", weight);
  return whole_.conv(weight, bias, shape, compute);
}

Tensor CutWeights::vector(const std::string& name, int64_t n) const {
  return cut_(name) ? PackingWeights::vector(name, n) : whole_.vector(name, n);
}

}  // namespace tessera::nn
