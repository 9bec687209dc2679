#include "kernels/packed_weight.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "base/fail.h"
#include "kernels/nibble_panels.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::kernels {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

constexpr int64_t kMostInt8 = 65536;  // 255 * 128 times this number fits into 32 bits

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class From>
float scale_of(const From* row, int64_t count) {
  std::array<float, 16> most{}, nan_sum{};
  const auto see = [&](size_t lane, From element) {
    const float value = tensor::to_float(element);
    most[lane] = std::max(most[lane], std::fabs(value));
    nan_sum[lane] += value * 0;  // NaN stays NaN
  };
  int64_t i = 0;
  for (; i + 16 <= count; i += 16)
    for (size_t lane = 0; lane < 16; ++lane) see(lane, row[i + static_cast<int64_t>(lane)]);
  for (; i < count; ++i) see(0, row[i]);
  return (*std::ranges::max_element(most) + std::accumulate(nan_sum.begin(), nan_sum.end(), 0.0f)) /
         127;
}

// Converts an element of a row.
template <class To>
struct Converter {
  float inverse = 1;  // inverse of the row's scale
  template <class From>
  Converter(const From* row, int64_t count) {
    if constexpr (std::is_same_v<To, int8_t> && !std::is_same_v<From, int8_t>) {
      const float scale = scale_of(row, count);
      inverse = scale > 0 ? 1 / scale : 0;
    }
  }
  To operator()(float value) const {
    if constexpr (std::is_same_v<To, int8_t>) {
      const float whole = nearest_whole(value * inverse);
      return static_cast<int8_t>(std::min(127.0f, std::max(-127.0f, whole)));  // never NaN
    } else {
      return tensor::from_float<To>(value);
    }
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
// converted inside L1, then transposed word by word.
template <class To, class From>
void pack_tile(const Tensor& w, int64_t first_row, int64_t steps, std::byte* out) {
  constexpr int64_t kStep = kStepWords * 4 / sizeof(To);
  const int64_t rows = std::min<int64_t>(kTileColumns, w.size(0) - first_row), k = w.size(1);
  std::vector<Converter<To>> convert;
  for (int64_t c = 0; c < rows; ++c) convert.emplace_back(w.row<From>(first_row + c), k);
  alignas(64) std::array<std::array<std::byte, kStepWords * 4>, kTileColumns> tile{};
  for (int64_t s = 0; s < steps; ++s) {
    const int64_t count = std::min(kStep, k - s * kStep);
    if (count < kStep) tile = {};
    for (int64_t c = 0; c < rows; ++c)
      convert_row(convert[static_cast<size_t>(c)], w.row<From>(first_row + c) + s * kStep, count,
                  reinterpret_cast<To*>(tile[static_cast<size_t>(c)].data()));
    std::byte* to = out + s * kStepBytes;
    for (size_t word = 0; word < kStepWords; ++word)
      for (size_t c = 0; c < kTileColumns; ++c, to += 4)
        std::memcpy(to, tile[c].data() + 4 * word, 4);  // copies words of any type
  }
}

template <class To, class From>
void pack_row(const From* from, int64_t count, To* to) {
  convert_row(Converter<To>(from, count), from, count, to);
}

// Calls f with values of the packed and the stored element type.
template <class F>
void with_types(DType packed, DType stored, F f) {
  if (stored == DType::i8) return f(int8_t{}, int8_t{});
  tensor::with_float_type(stored, [&](auto from) {
    if (packed == DType::i8)
      f(int8_t{}, from);
    else
      tensor::with_float_type(packed, [&](auto to) { f(to, from); });
  });
}

// Packs the scales of `rows` rows of `w` from `first_row` on, zeros beyond the last.
void pack_scales(const StoredMatrix& w, int64_t rows, int64_t first_row, float* scales) {
  rows = std::min(rows, w.values.size(0) - first_row);
  if (w.scales.defined()) {
    std::copy_n(w.scales.data<float>() + first_row, std::max<int64_t>(rows, 0), scales);
    return;
  }
  tensor::with_float_type(w.values.dtype(), [&](auto from) {
    for (int64_t r = 0; r < rows; ++r)
      scales[r] = scale_of(w.values.row<decltype(from)>(first_row + r), w.values.size(1));
  });
}

void pack_row_major(const StoredMatrix& w, int64_t first_row, PackedWeight& packed) {
  const Tensor& values = w.values;
  with_types(packed.dtype, values.dtype(), [&](auto to, auto from) {
    tensor::parallel_for(values.size(0), 16, [&](int64_t begin, int64_t end) {
      if (packed.scales.defined())
        pack_scales(w, end - begin, begin, packed.scales.data<float>() + first_row + begin);
      for (int64_t r = begin; r < end; ++r)
        pack_row(values.row<decltype(from)>(r), values.size(1),
                 packed.data.row<decltype(to)>(first_row + r));
    });
  });
}

void pack_panels(const StoredMatrix& w, const StoredMatrix& up, PackedWeight& packed) {
  const PanelShape shape = panel_shape(packed);
  tensor::parallel_tasks(shape.panels * 2, [&](int64_t task) {
    const int64_t panel = task / 2, tile = task % 2;
    const StoredMatrix& matrix = packed.paired && tile == 1 ? up : w;
    const int64_t row = panel * shape.columns + (packed.paired ? 0 : tile * kTileColumns);
    std::byte* out =
        packed.data.data<std::byte>() + panel * shape.steps * kStepBytes + tile * kStepBytes / 2;
    if (packed.scales.defined())
      pack_scales(matrix, kTileColumns, row,
                  packed.scales.data<float>() + panel * kPanelColumns + tile * kTileColumns);
    with_types(packed.dtype, matrix.values.dtype(), [&](auto to, auto from) {
      pack_tile<decltype(to), decltype(from)>(matrix.values, row, shape.steps, out);
    });
  });
}

// Accepts floats, or integers with scales, kept unchanged.
void check_stored(const StoredMatrix& w, DType dtype) {
  const Tensor& values = w.values;
  const bool i8 = values.defined() && values.dtype() == DType::i8;
  require(values.rank() == 2 && (i8 || tensor::is_float(values.dtype())), ErrorCode::usage,
          "pack_weight: weight {} of {}; expected a float matrix [n, k], or one of i8 with scales",
          values.shape().str(), tensor::name_of(values.dtype()));
  require(i8 ? dtype == DType::i8 && w.scales.defined() && w.scales.dtype() == DType::f32 &&
                   w.scales.rank() == 1 && w.scales.size(0) == values.size(0)
             : !w.scales.defined(),
          ErrorCode::usage,
          "pack_weight: weight {} of {} for products in {}; expected floats, or i8 for i8 with a "
          "scale f32 for each row",
          values.shape().str(), tensor::name_of(values.dtype()), tensor::name_of(dtype));
}

Tensor scales_for(int64_t columns, tensor::Device device) {
  return Tensor::zeros({columns}, DType::f32, device, tensor::MemoryClass::weights);
}

}  // namespace

PanelShape panel_shape(const PackedWeight& weight) {
  const int64_t columns = weight.paired ? kTileColumns : kPanelColumns;
  return {ceil_div(weight.n, columns), ceil_div(weight.k, step_elements(weight.dtype)), columns};
}

PackedWeight pack_weight(const StoredMatrix& stored, const StoredMatrix& up, DType dtype, Isa isa) {
  if (holds_nibbles(stored)) return pack_nibbles(stored, up, dtype, isa);
  const Tensor& w = stored.values;
  check_stored(stored, dtype);
  require(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::i8, ErrorCode::usage,
          "pack_weight: weights in {} are not supported; choose f32, bf16 or i8",
          tensor::name_of(dtype));
  require(dtype != DType::i8 || w.size(1) <= kMostInt8, ErrorCode::usage,
          "pack_weight: weight {} in i8; expected at most {} columns", w.shape().str(), kMostInt8);
  const bool paired = up.values.defined();
  if (paired) check_stored(up, dtype);
  require(!paired || (up.values.shape() == w.shape() && up.values.is_meta() == w.is_meta()),
          ErrorCode::usage, "pack_weight: gate {} and up do not match; expected equal shapes",
          w.shape().str());
  PackedWeight packed{w.size(0), w.size(1), dtype, isa, paired, {}};
  const tensor::Device device = w.is_meta() ? tensor::Device::meta : tensor::Device::cpu;
  if (isa < Isa::avx2) {
    packed.data = Tensor::empty({packed.n * (paired ? 2 : 1), packed.k}, dtype, device,
                                tensor::MemoryClass::weights);
    if (dtype == DType::i8) packed.scales = scales_for(packed.data.size(0), device);
    if (w.is_meta()) return packed;
    pack_row_major(stored, 0, packed);
    if (paired) pack_row_major(up, packed.n, packed);
    return packed;
  }
  const PanelShape shape = panel_shape(packed);
  packed.data = Tensor::empty({shape.panels, shape.steps, kStepBytes / size_of(dtype)}, dtype,
                              device, tensor::MemoryClass::weights);
  if (dtype == DType::i8) packed.scales = scales_for(shape.panels * kPanelColumns, device);
  if (!w.is_meta()) pack_panels(stored, up, packed);
  return packed;
}

bool fills_panels(int64_t n, int64_t k, bool paired) {
  return n % (paired ? kTileColumns : kPanelColumns) == 0 && k % step_elements(DType::i8) == 0;
}

StoredPanels panels_of(const StoredMatrix& w, const StoredMatrix& up) {
  const PackedWeight packed = pack_weight(w, up, DType::i8, Isa::avx2);
  return {packed.n, packed.k, packed.paired, packed.data, {w.scales, up.scales}};
}

std::array<StoredMatrix, 2> rows_of(const StoredPanels& p) {
  if (holds_nibbles(p)) return rows_of_nibbles(p);
  const PackedWeight like{p.n, p.k, DType::i8, Isa::avx2, p.paired, p.values};
  const PanelShape shape = panel_shape(like);
  std::array<StoredMatrix, 2> rows;
  const tensor::Uncounted aside(tensor::Counts::work);  // temporary, like data read from a file
  for (size_t i = 0; i < (p.paired ? 2 : 1); ++i)
    rows[i] = {Tensor::empty({p.n, p.k}, DType::i8), p.scales[i]};
  tensor::parallel_tasks(shape.panels * 2, [&](int64_t task) {
    const int64_t panel = task / 2, tile = task % 2;
    const int64_t first = panel * shape.columns + (p.paired ? 0 : tile * kTileColumns);
    Tensor& to = rows[p.paired ? static_cast<size_t>(tile) : 0].values;
    const std::byte* from =
        p.values.data<std::byte>() + panel * shape.steps * kStepBytes + tile * kStepBytes / 2;
    const int64_t count = std::clamp<int64_t>(p.n - first, 0, kTileColumns);
    for (int64_t s = 0; s < shape.steps; ++s, from += kStepBytes)
      for (int64_t word = 0; word < kStepWords; ++word) {
        const int64_t k = (s * kStepWords + word) * 4;
        const auto bytes = static_cast<size_t>(std::clamp<int64_t>(p.k - k, 0, 4));
        for (int64_t c = 0; c < count; ++c)
          std::memcpy(to.row<int8_t>(first + c) + k, from + (word * kTileColumns + c) * 4, bytes);
      }
  });
  return rows;
}

PackedWeight pack_panels(const StoredPanels& p, Isa isa) {
  if (isa < Isa::avx2) {
    const auto [w, up] = rows_of(p);
    return pack_weight(w, up, DType::i8, isa);
  }
  PackedWeight packed{p.n, p.k, DType::i8, isa, p.paired, p.values};
  packed.int4 = holds_nibbles(p);
  if (packed.int4) return packed;
  const PanelShape shape = panel_shape(packed);
  packed.scales = scales_for(shape.panels * kPanelColumns, Device::cpu);
  for (int64_t half = 0; half < 2 * shape.panels; ++half) {
    const int64_t panel = half / 2, tile = half % 2;
    const int64_t row = panel * shape.columns + (p.paired ? 0 : tile * kTileColumns);
    const Tensor& scales = p.scales[p.paired ? static_cast<size_t>(tile) : 0];
    const int64_t count = std::clamp<int64_t>(p.n - row, 0, kTileColumns);
    std::copy_n(scales.data<float>() + row, count,
                packed.scales.data<float>() + half * kTileColumns);
  }
  return packed;
}

StoredMatrix quantise_rows(const Tensor& w) {
  const PackedWeight rows = pack_weight(w, {}, DType::i8, Isa::reference);
  return {rows.data, rows.scales};
}

}  // namespace tessera::kernels
