#include "kernels/pack_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "base/fail.h"
#include "kernels/nibbles.h"
#include "kernels/scratch.h"
#include "tensor/scope.h"

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

using Words = uint32_t __attribute__((vector_size(16)));

// Four words of each of four rows, as four rows of a word each.
void transpose_words(const std::array<const std::byte*, kTileColumns>& rows, size_t first,
                     int64_t at, std::byte* to) {
  std::array<Words, 4> row;
  for (size_t i = 0; i < 4; ++i) std::memcpy(&row[i], rows[first + i] + at, sizeof(Words));
  const Words low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5),
              low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5),
              high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7),
              high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  const std::array<Words, 4> word = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                                     __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                                     __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                                     __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
  for (size_t i = 0; i < 4; ++i) std::memcpy(to + i * kTileColumns * 4, &word[i], sizeof(Words));
}

// A tile of a step, from 16 rows of 16 words.
void transpose_tile(const std::array<const std::byte*, kTileColumns>& rows, std::byte* to) {
  for (size_t column = 0; column < kTileColumns; column += 4)
    for (int64_t word = 0; word < kStepWords; word += 4)
      transpose_words(rows, column, word * 4, to + word * kTileColumns * 4 + column * 4);
}

// Rows of a matrix, in memory.
template <class T>
struct Rows {
  const T* first = nullptr;
  int64_t count = 0, stride = 0;
  const T* row(int64_t r) const { return first + r * stride; }
};

// Rows [first, first + count) of a matrix, as far as there are any; read ones stay in the thread's
// scratch.
template <class T>
Rows<T> rows_at(const StoredRows& w, int64_t first, int64_t count) {
  const Tensor& values = w.matrix.values;
  const int64_t k = values.size(1);
  count = std::clamp<int64_t>(values.size(0) - first, 0, count);
  if (count == 0) return {};
  if (!w.read) return {values.row<T>(first), count, values.stride(0)};
  std::byte* const rows = thread_scratch(0).at_least(count * k * static_cast<int64_t>(sizeof(T)));
  w.read(first, count, rows);
  return {reinterpret_cast<const T*>(rows), count, k};
}

// Columns of a tile of the panel layout come from one matrix row each: a step of 16 rows is
// converted inside L1, then transposed word by word.
template <class To, class From>
void pack_tile(const Rows<From>& rows, int64_t k, std::byte* out) {
  constexpr int64_t kStep = kStepWords * 4 / sizeof(To);
  const int64_t steps = ceil_div(k, kStep);
  std::vector<Converter<To>> convert;
  for (int64_t c = 0; c < rows.count; ++c) convert.emplace_back(rows.row(c), k);
  alignas(64) std::array<std::array<std::byte, kStepWords * 4>, kTileColumns> tile{};
  std::array<const std::byte*, kTileColumns> from;
  constexpr bool kSame = std::is_same_v<To, From>;
  for (int64_t s = 0; s < steps; ++s, out += kStepBytes) {
    const int64_t count = std::min(kStep, k - s * kStep);
    if (count < kStep) tile = {};
    for (size_t c = 0; c < kTileColumns; ++c) {
      from[c] = tile[c].data();
      const auto r = static_cast<int64_t>(c);
      if (r >= rows.count) continue;
      const From* const at = rows.row(r) + s * kStep;
      if (kSame && count == kStep)
        from[c] = reinterpret_cast<const std::byte*>(at);
      else
        convert_row(convert[c], at, count, reinterpret_cast<To*>(tile[c].data()));
    }
    transpose_tile(from, out);
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

// Packs the scales of rows of `w` from `first_row` on.
template <class T>
void pack_scales(const StoredMatrix& w, int64_t first_row, const Rows<T>& rows, float* scales) {
  if (w.scales.defined())
    std::copy_n(w.scales.data<float>() + first_row, rows.count, scales);
  else
    for (int64_t r = 0; r < rows.count; ++r) scales[r] = scale_of(rows.row(r), w.values.size(1));
}

void pack_row_major(const StoredMatrix& w, int64_t first_row, PackedWeight& packed) {
  const Tensor& values = w.values;
  with_types(packed.dtype, values.dtype(), [&](auto to, auto from) {
    tensor::parallel_for(values.size(0), 16, [&](int64_t begin, int64_t end) {
      const Rows rows = rows_at<decltype(from)>({w, {}}, begin, end - begin);
      if (packed.scales.defined())
        pack_scales(w, begin, rows, packed.scales.data<float>() + first_row + begin);
      for (int64_t r = 0; r < rows.count; ++r)
        pack_row(rows.row(r), values.size(1), packed.data.row<decltype(to)>(first_row + begin + r));
    });
  });
}

void pack_tile_of(const StoredRows& w, int64_t first_row, float* scales, DType dtype,
                  std::byte* out) {
  const Tensor& values = w.matrix.values;
  with_types(dtype, values.dtype(), [&](auto to, auto from) {
    const Rows rows = rows_at<decltype(from)>(w, first_row, kTileColumns);
    if (scales) pack_scales(w.matrix, first_row, rows, scales);
    pack_tile<decltype(to), decltype(from)>(rows, values.size(1), out);
  });
}

// A thread packs panels that follow each other: two threads would touch new large pages twice.
void pack_panels(const StoredRows& w, const StoredRows& up, PackedWeight& packed) {
  const PanelShape shape = panel_shape(packed);
  float* const scales = packed.scales.defined() ? packed.scales.data<float>() : nullptr;
  tensor::parallel_for(shape.panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel)
      for (int64_t tile = 0; tile < 2; ++tile)
        pack_tile_of(packed.paired && tile == 1 ? up : w,
                     panel * shape.columns + (packed.paired ? 0 : tile * kTileColumns),
                     scales ? scales + panel * kPanelColumns + tile * kTileColumns : nullptr,
                     packed.dtype,
                     packed.data.data<std::byte>() + panel * shape.steps * kStepBytes +
                         tile * kStepBytes / 2);
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

PackedWeight pack(const StoredRows& w, const StoredRows& up, DType dtype, Isa isa) {
  const Tensor& values = w.matrix.values;
  check_stored(w.matrix, dtype);
  require(dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::i8, ErrorCode::usage,
          "pack_weight: weights in {} are not supported; choose f32, bf16 or i8",
          tensor::name_of(dtype));
  require(dtype != DType::i8 || values.size(1) <= kMostInt8, ErrorCode::usage,
          "pack_weight: weight {} in i8; expected at most {} columns", values.shape().str(),
          kMostInt8);
  const bool paired = up.matrix.values.defined();
  if (paired) check_stored(up.matrix, dtype);
  const auto is_meta = [](const StoredRows& rows) {
    return rows.matrix.values.is_meta() && !rows.read;
  };
  require(!paired || (up.matrix.values.shape() == values.shape() && is_meta(up) == is_meta(w)),
          ErrorCode::usage, "pack_weight: gate {} and up do not match; expected equal shapes",
          values.shape().str());
  PackedWeight packed{values.size(0), values.size(1), dtype, isa, paired, {}};
  const bool meta = is_meta(w);
  const Device device = meta ? Device::meta : Device::cpu;
  if (isa < Isa::avx2) {
    packed.data = Tensor::empty({packed.n * (paired ? 2 : 1), packed.k}, dtype, device,
                                tensor::MemoryClass::weights);
    if (dtype == DType::i8) packed.scales = scales_for(packed.data.size(0), device);
    if (meta) return packed;
    pack_row_major(w.matrix, 0, packed);
    if (paired) pack_row_major(up.matrix, packed.n, packed);
    return packed;
  }
  const PanelShape shape = panel_shape(packed);
  packed.data = Tensor::empty({shape.panels, shape.steps, kStepBytes / size_of(dtype)}, dtype,
                              device, tensor::MemoryClass::weights);
  if (dtype == DType::i8) packed.scales = scales_for(shape.panels * kPanelColumns, device);
  if (!meta) pack_panels(w, up, packed);
  return packed;
}

}  // namespace

PackedWeight pack_weight(const StoredMatrix& w, const StoredMatrix& up, DType dtype, Isa isa) {
  return holds_nibbles(w) ? pack_nibbles(w, up, dtype, isa) : pack({w, {}}, {up, {}}, dtype, isa);
}

PackedWeight pack_rows(const StoredRows& w, const StoredRows& up, DType dtype, Isa isa) {
  require(isa >= Isa::avx2, ErrorCode::usage, "pack_rows: weight {} for {}; expected panels",
          w.matrix.values.shape().str(), name_of(isa));
  return pack(w, up, dtype, isa);
}

}  // namespace tessera::kernels
