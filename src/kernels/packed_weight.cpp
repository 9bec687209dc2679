#include "kernels/packed_weight.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/fail.h"
#include "tensor/scope.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr int64_t kMostInt8 = 65536;  // 255 * 128 times as many fit into 32 bits

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class From>
float scale_of(const From* row, int64_t count) {
  float most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::fabs(tensor::to_float(row[i])));
  return most / 127;
}

// What an element of a row becomes.
template <class To>
struct Converter {
  float inverse = 1;  // of the row's scale
  template <class From>
  Converter(const From* row, int64_t count) {
    if constexpr (std::is_same_v<To, int8_t>) {
      const float scale = scale_of(row, count);
      inverse = scale > 0 ? 1 / scale : 0;
    }
  }
  To operator()(float value) const {
    if constexpr (std::is_same_v<To, int8_t>)
      return static_cast<int8_t>(std::clamp(std::nearbyint(value * inverse), -127.0f, 127.0f));
    else
      return tensor::from_float<To>(value);
  }
};

template <class To, class From>
void convert_row(const Converter<To>& convert, const From* from, int64_t count, To* to) {
  if constexpr (std::is_same_v<To, From>)
    std::copy_n(from, count, to);
  else
    for (int64_t i = 0; i < count; ++i) to[i] = convert(tensor::to_float(from[i]));
}

// Columns [tile * 16, ...) of the panel layout come from one matrix row each: a step of 16 rows is
// converted where it stays in the nearest cache, then transposed word by word.
template <class To, class From>
void pack_tile(const Tensor& w, int64_t first_row, int64_t steps, std::byte* out) {
  constexpr int64_t kStep = kStepWords * 4 / sizeof(To);
  const int64_t rows = std::min<int64_t>(kTileColumns, w.size(0) - first_row), k = w.size(1);
  std::vector<Converter<To>> convert;
  for (int64_t c = 0; c < rows; ++c) convert.emplace_back(w.row<From>(first_row + c), k);
  alignas(64) std::array<std::array<std::byte, kStepWords * 4>, kTileColumns> staged{};
  for (int64_t s = 0; s < steps; ++s) {
    const int64_t count = std::min(kStep, k - s * kStep);
    if (count < kStep) staged = {};
    for (int64_t c = 0; c < rows; ++c)
      convert_row(convert[static_cast<size_t>(c)], w.row<From>(first_row + c) + s * kStep, count,
                  reinterpret_cast<To*>(staged[static_cast<size_t>(c)].data()));
    std::byte* to = out + s * kStepBytes;
    for (size_t word = 0; word < kStepWords; ++word)
      for (size_t c = 0; c < kTileColumns; ++c, to += 4)
        std::memcpy(to, staged[c].data() + 4 * word, 4);  // whatever type it holds
  }
}

template <class To, class From>
void pack_row(const From* from, int64_t count, To* to) {
  convert_row(Converter<To>(from, count), from, count, to);
}

// Calls f with a value of the element type of packed weights.
template <class F>
void with_packed_type(DType dtype, F f) {
  if (dtype == DType::i8)
    f(int8_t{});
  else
    tensor::with_float_type(dtype, f);
}

// The scales of the rows of `w`, from place `at` on.
void pack_scales(const Tensor& w, int64_t rows, int64_t first_row, float* scales) {
  tensor::with_float_type(w.dtype(), [&](auto from) {
    for (int64_t r = 0; r < rows && first_row + r < w.size(0); ++r)
      scales[r] = scale_of(w.row<decltype(from)>(first_row + r), w.size(1));
  });
}

void pack_row_major(const Tensor& w, int64_t first_row, PackedWeight& packed) {
  if (packed.scales.defined())
    pack_scales(w, w.size(0), 0, packed.scales.data<float>() + first_row);
  with_packed_type(packed.dtype, [&](auto to) {
    tensor::with_float_type(w.dtype(), [&](auto from) {
      tensor::parallel_for(w.size(0), 16, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r)
          pack_row(w.row<decltype(from)>(r), w.size(1),
                   packed.data.row<decltype(to)>(first_row + r));
      });
    });
  });
}

void pack_panels(const Tensor& w, const Tensor& up, PackedWeight& packed) {
  const PanelShape shape = panel_shape(packed);
  with_packed_type(packed.dtype, [&](auto to) {
    tensor::parallel_tasks(shape.panels * 2, [&](int64_t task) {
      const int64_t panel = task / 2, tile = task % 2;
      const Tensor& from = packed.paired && tile == 1 ? up : w;
      const int64_t row = panel * shape.columns + (packed.paired ? 0 : tile * kTileColumns);
      std::byte* out =
          packed.data.data<std::byte>() + panel * shape.steps * kStepBytes + tile * kStepBytes / 2;
      if (packed.scales.defined())
        pack_scales(from, kTileColumns, row,
                    packed.scales.data<float>() + panel * kPanelColumns + tile * kTileColumns);
      tensor::with_float_type(from.dtype(), [&](auto type) {
        pack_tile<decltype(to), decltype(type)>(from, row, shape.steps, out);
      });
    });
  });
}

Tensor scales_for(int64_t columns, tensor::Device device) {
  return Tensor::zeros({columns}, DType::f32, device, tensor::MemoryClass::weights);
}

}  // namespace

PanelShape panel_shape(const PackedWeight& weight) {
  const int64_t columns = weight.paired ? kTileColumns : kPanelColumns;
  return {ceil_div(weight.n, columns), ceil_div(weight.k, step_elements(weight.dtype)), columns};
}

PackedWeight pack_weight(const Tensor& w, const Tensor& up, DType dtype, Isa isa) {
  require(w.rank() == 2 && tensor::is_float(w.dtype()), ErrorCode::usage,
          "pack_weight: weight {} of {}; expected a float matrix [n, k]", w.shape().str(),
          tensor::name_of(w.dtype()));
  require(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::i8, ErrorCode::usage,
          "pack_weight: weights in {} are not supported; choose f32, bf16 or i8",
          tensor::name_of(dtype));
  require(dtype != DType::i8 || w.size(1) <= kMostInt8, ErrorCode::usage,
          "pack_weight: weight {} in i8; expected at most {} columns", w.shape().str(), kMostInt8);
  const bool paired = up.defined();
  require(!paired || (up.shape() == w.shape() && tensor::is_float(up.dtype()) &&
                      up.is_meta() == w.is_meta()),
          ErrorCode::usage, "pack_weight: gate {} and up do not match; expected equal shapes",
          w.shape().str());
  PackedWeight packed{w.size(0), w.size(1), dtype, isa, paired, {}};
  const tensor::Device device = w.is_meta() ? tensor::Device::meta : tensor::Device::cpu;
  if (isa < Isa::avx512) {
    packed.data = Tensor::empty({packed.n * (paired ? 2 : 1), packed.k}, dtype, device,
                                tensor::MemoryClass::weights);
    if (dtype == DType::i8) packed.scales = scales_for(packed.data.size(0), device);
    if (w.is_meta()) return packed;
    pack_row_major(w, 0, packed);
    if (paired) pack_row_major(up, packed.n, packed);
    return packed;
  }
  const PanelShape shape = panel_shape(packed);
  packed.data = Tensor::empty({shape.panels, shape.steps, kStepBytes / size_of(dtype)}, dtype,
                              device, tensor::MemoryClass::weights);
  if (dtype == DType::i8) packed.scales = scales_for(shape.panels * kPanelColumns, device);
  if (!w.is_meta()) pack_panels(w, up, packed);
  return packed;
}

}  // namespace tessera::kernels
