#include "kernels/conv.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/fail.h"
#include "kernels/avx512/conv.h"
#include "kernels/packed_weight.h"
#include "tensor/scope.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

// [out, in, taps] -> [out, taps, in].
template <class To, class From>
void pack_row_major(const From* from, const PackedConv& w, int64_t o, To* to) {
  const int64_t taps = w.kh * w.kw;
  for (int64_t i = 0; i < w.in; ++i)
    for (int64_t t = 0; t < taps; ++t)
      to[(o * taps + t) * w.in + i] =
          tensor::from_float<To>(tensor::to_float(from[(o * w.in + i) * taps + t]));
}

template <class To, class From>
void pack_panels(const From* from, const PackedConv& w, const avx512::ConvPanels& panels,
                 int64_t block, To* to) {
  std::memset(
      static_cast<void*>(to + panels.at(block, 0, 0, 0, 0)), 0,
      static_cast<size_t>(panels.taps * panels.in_padded() * panels.columns(block)) * sizeof(To));
  const int64_t first = block * avx512::kConvColumns;
  for (int64_t c = 0; c < avx512::kConvColumns && first + c < w.out; ++c)
    for (int64_t i = 0; i < w.in; ++i)
      for (int64_t t = 0; t < panels.taps; ++t)
        to[panels.at(block, t, i / panels.per_word, c, i % panels.per_word)] =
            tensor::from_float<To>(
                tensor::to_float(from[((first + c) * w.in + i) * panels.taps + t]));
}

Tensor widened(const Tensor& bias) {
  if (!bias.defined()) return {};
  const tensor::Device device = bias.device();
  Tensor f32 = Tensor::empty(bias.shape(), DType::f32, device, tensor::MemoryClass::weights);
  if (bias.is_meta()) return f32;
  const std::vector<float> values = bias.to_floats();
  std::copy(values.begin(), values.end(), f32.data<float>());
  return f32;
}

}  // namespace

void avx512::derive_on_meta(const PackedConv& weight) {
  if (weight.isa < Isa::avx512 || weight.kh != 3 || weight.kw != 3) return;
  const std::lock_guard lock(weight.derived->mutex);
  Tensor& folded = weight.derived->folded;
  const avx512::ConvPanels panels(weight.out, weight.in, 4, weight.dtype);
  if (!folded.defined())
    folded = Tensor::empty({4 * panels.elements()}, weight.dtype, tensor::Device::meta,
                           tensor::MemoryClass::weights);
}

PackedConv pack_conv(const Tensor& weight, const Tensor& bias, DType dtype, Isa isa) {
  require(weight.rank() == 4 && tensor::is_float(weight.dtype()), ErrorCode::usage,
          "pack_conv: weight {} of {}; expected floats [out, in, kh, kw]", weight.shape().str(),
          tensor::name_of(weight.dtype()));
  require(dtype == DType::f32 || dtype == DType::bf16, ErrorCode::usage,
          "pack_conv: filters in {} are not supported; choose f32 or bf16", tensor::name_of(dtype));
  require(!bias.defined() || (bias.rank() == 1 && bias.size(0) == weight.size(0) &&
                              tensor::is_float(bias.dtype()) && bias.is_meta() == weight.is_meta()),
          ErrorCode::usage, "pack_conv: bias {} does not fit weight {}; expected [{}]",
          bias.shape().str(), weight.shape().str(), weight.size(0));
  PackedConv packed{.out = weight.size(0),
                    .in = weight.size(1),
                    .kh = weight.size(2),
                    .kw = weight.size(3),
                    .dtype = dtype,
                    .isa = isa,
                    .data = {},
                    .bias = widened(bias),
                    .derived = std::make_shared<ConvDerived>()};
  const int64_t taps = packed.kh * packed.kw;
  const bool panelled = isa >= Isa::avx512;
  const avx512::ConvPanels panels(packed.out, packed.in, taps, dtype);
  packed.data = Tensor::empty({panelled ? panels.elements() : packed.out * taps * packed.in}, dtype,
                              weight.device(), tensor::MemoryClass::weights);
  // Packs rows for products over patches.
  const auto pack_rows = [&] {
    packed.data =
        pack_weight(packed.data.reshape({packed.out, taps * packed.in}), {}, dtype, isa).data;
  };
  if (weight.is_meta()) {
    if (isa == Isa::avx2) pack_rows();
    return packed;
  }
  const Tensor source = weight.contiguous();
  tensor::with_float_type(dtype, [&](auto to) {
    tensor::with_float_type(source.dtype(), [&](auto type) {
      using From = decltype(type);
      auto* out = packed.data.data<decltype(to)>();
      tensor::parallel_tasks(panelled ? panels.blocks() : packed.out, [&](int64_t task) {
        if (panelled)
          pack_panels(source.data<From>(), packed, panels, task, out);
        else
          pack_row_major(source.data<From>(), packed, task, out);
      });
    });
  });
  if (isa == Isa::avx2) pack_rows();
  return packed;
}

}  // namespace tessera::kernels
