#include "kernels/conv.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/fail.h"
#include "kernels/avx512/conv.h"
#include "kernels/packed_weight.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr int64_t kMostInt8 = 65536;  // integer sums do not overflow

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

// Integers of rows [out, taps, in], plus 128, in panels.
Tensor panels_of_rows(const Tensor& rows, const PackedConv& w, const avx512::ConvPanels& panels) {
  Tensor data =
      Tensor::zeros({panels.elements()}, DType::i8, rows.device(), tensor::MemoryClass::weights);
  if (rows.is_meta()) return data;
  auto* const to = data.data<uint8_t>();
  tensor::parallel_tasks(w.out, [&](int64_t o) {
    const int8_t* from = rows.row<int8_t>(o);
    for (int64_t t = 0; t < panels.taps; ++t)
      for (int64_t i = 0; i < w.in; ++i)
        to[panels.at(o / avx512::kConvColumns, t, i / panels.per_word, o % avx512::kConvColumns,
                     i % panels.per_word)] =
            static_cast<uint8_t>(from[t * w.in + i] + avx512::kConvOffset);
  });
  return data;
}

// Rows [out, taps * in] in i8.
StoredMatrix quantised_rows(const Tensor& weight, const PackedConv& w) {
  const tensor::Uncounted aside(tensor::Counts::work);
  const Tensor rows = Tensor::empty({w.out, w.kh * w.kw * w.in}, DType::f32, weight.device());
  if (rows.is_meta()) return quantise_rows(rows);
  const Tensor source = weight.contiguous();
  tensor::with_float_type(source.dtype(), [&](auto type) {
    tensor::parallel_tasks(w.out, [&](int64_t o) {
      pack_row_major(source.data<decltype(type)>(), w, o, rows.data<float>());
    });
  });
  return quantise_rows(rows);
}

// The matrices [out, in] of the taps, packed for products, one behind another.
Tensor joined_taps(const StoredMatrix& rows, const PackedConv& w) {
  const int64_t taps = w.kh * w.kw;
  Tensor joined;
  for (int64_t t = 0; t < taps; ++t) {
    const tensor::Uncounted aside(tensor::Counts::work);
    const Tensor tap = rows.values.slice(1, t * w.in, (t + 1) * w.in).contiguous();
    const Tensor packed = pack_weight({tap, rows.scales}, {}, DType::i8, w.isa).data;
    const int64_t bytes = packed.bytes();
    if (t == 0) joined = Tensor::empty({taps, bytes}, DType::i8, packed.device());
    if (!joined.is_meta())
      std::memcpy(joined.row<int8_t>(t), packed.raw(), static_cast<size_t>(bytes));
  }
  return joined.held_as(tensor::MemoryClass::weights);
}

// Scales for the columns of packed taps: zeros behind the last.
Tensor padded_scales(const Tensor& scales) {
  const int64_t columns = (scales.size(0) + kPanelColumns - 1) / kPanelColumns * kPanelColumns;
  Tensor padded =
      Tensor::zeros({columns}, DType::f32, scales.device(), tensor::MemoryClass::weights);
  if (!padded.is_meta()) std::copy_n(scales.data<float>(), scales.size(0), padded.data<float>());
  return padded;
}

void pack_int8(const Tensor& weight, PackedConv& w) {
  const int64_t taps = w.kh * w.kw;
  require(taps * w.in <= kMostInt8, ErrorCode::usage,
          "pack_conv: weight {} in i8: at most {} weights for an output channel; choose bf16",
          weight.shape().str(), kMostInt8);
  const StoredMatrix rows = quantised_rows(weight, w);
  w.scales = padded_scales(rows.scales);
  if (w.isa >= Isa::avx512)
    w.data = panels_of_rows(rows.values, w, {w.out, w.in, taps, w.dtype});
  else if (w.isa == Isa::avx2)
    w.data = joined_taps(rows, w);
  else
    w.data = rows.values.held_as(tensor::MemoryClass::weights);
}

}  // namespace

void avx512::derive_on_meta(const PackedConv& weight) {
  if (weight.isa < Isa::avx512 || weight.kh != 3 || weight.kw != 3 || weight.dtype == DType::i8)
    return;
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
  require(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::i8, ErrorCode::usage,
          "pack_conv: filters in {} are not supported; choose f32, bf16 or i8",
          tensor::name_of(dtype));
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
  if (dtype == DType::i8) {
    pack_int8(weight, packed);
    return packed;
  }
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
