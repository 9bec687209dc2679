#include "nn/linear.h"

#include <utility>
#include <vector>

#include "base/fail.h"
#include "nn/input_records.h"
#include "ops/elementwise.h"

namespace tessera::nn {

Linear::Linear(const Weights& weights, const std::string& name, int64_t n, int64_t k,
               ops::DType dtype, const LinearForm& form) {
  const Cut cut = form.split.of(weights.shard());
  partial_ = form.split.by_inputs && !cut.whole();
  FetchedWeight weight = weights.fetch({.form = WeightRequest::Form::matrix,
                                        .name = name + ".weight",
                                        .shape = {n, k},
                                        .compute = dtype,
                                        .cut = cut});
  weight_ = std::move(weight.packed);
  bring_ = std::move(weight.at_use);
  if (weights.smoothed(name + ".weight"))
    input_scale_ =
        weights.vector(input_scale_of(name + ".weight"), k, partial_ ? Cut{0, cut.ranges} : Cut{});
  record_ = weights.record(name + ".weight");
  if (form.bias) bias_ = weights.vector(name + ".bias", n, partial_ ? Cut{} : cut);
}

ops::Tensor reduced_matmul(const ops::Tensor& x, const ops::Weight& weight,
                           const ops::MatmulOptions& options, Reduce* reduce) {
  if (!reduce) return ops::matmul(x, weight, options);
  require(options.activation == ops::Activation::none && !options.into.defined() &&
              (options.residual.defined() || !options.gate.defined()),
          ErrorCode::usage,
          "a product split along k takes no activation and no place for its result, which need the "
          "whole sum, and a gate with a residual only");
  const auto finish = [&](const ops::Tensor& sum, Range rows) {
    ops::Tensor y = options.bias.defined() ? ops::add_row(sum, options.bias) : sum;
    if (options.residual.defined()) {
      const ops::Tensor stream =
          ops::cast(options.residual.slice(0, rows.begin, rows.end), ops::DType::f32);
      y = options.gate.defined()
              ? ops::add_gated(stream, y, options.gate, options.row_of.part(rows.begin, rows.end))
              : ops::add(y, stream);
    }
    return ops::cast(y, x.dtype());
  };
  const auto part = [&](Range rows) {
    return ops::matmul(x.slice(0, rows.begin, rows.end), weight,
                       {.out = ops::DType::f32, .out_as_input = false});
  };
  return reduce->sum(x.size(0), part, finish);
}

ops::Tensor Linear::operator()(const ops::Tensor& input, ops::MatmulOptions options,
                               Reduce* reduce) const {
  require(reduce || !partial_, ErrorCode::usage,
          "a layer split by its inputs needs the ranks that hold the rest of it");
  options.bias = bias_;
  if (record_) record_->see(input);
  const ops::Tensor x = input_scale_.defined() ? ops::multiply_row(input, input_scale_) : input;
  if (bring_) options.group = nullptr;  // a group would keep the weight
  return reduced_matmul(x, bring_ ? bring_().packed : weight_, options,
                        partial_ ? reduce : nullptr);
}

}  // namespace tessera::nn
