#include "kernels/packed_transpose.h"

#include <algorithm>
#include <type_traits>

#include "base/fail.h"
#include "tensor/scope.h"

namespace tessera::kernels {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

template <class To, class From>
To converted(From value) {
  if constexpr (std::is_same_v<To, From>)
    return value;
  else
    return tensor::from_float<To>(tensor::to_float(value));
}

// A word of two vertically adjacent elements.
template <class To, class From>
void pack_pair(const From* upper, const From* lower, int64_t columns, To* out) {
  for (int64_t c = 0; c < columns; ++c) {
    out[2 * c] = converted<To>(upper[c]);
    out[2 * c + 1] = lower ? converted<To>(lower[c]) : To{};
  }
}

/// A table [k, n] for loops over its rows.
template <class T>
struct TableRows {
  explicit TableRows(const Tensor& table)
      : data(table.data<T>()), stride(table.stride(0)), k(table.size(0)), n(table.size(1)) {}
  const T* at(int64_t row, int64_t column) const { return data + row * stride + column; }

  const T* data;
  int64_t stride, k, n;
};

// A tile of a step: words of vertically adjacent elements of the table.
template <class To, class From>
void pack_turned_tile(const TableRows<From>& table, int64_t step, int64_t column, To* out) {
  constexpr int64_t kWord = 4 / sizeof(To), kStep = kStepWords * kWord;
  const int64_t columns = std::clamp<int64_t>(table.n - column, 0, kTileColumns),
                first = step * kStep, rows = std::min(kStep, table.k - first);
  if (columns < kTileColumns || rows < kStep) std::fill_n(out, kStep * kTileColumns, To{});
  const auto pack = [&](int64_t r, int64_t count) {
    const From* const from = table.at(first + r, column);
    To* const to = out + r / kWord * kTileColumns * kWord;
    if constexpr (kWord == 2)
      pack_pair(from, r + 1 < rows ? from + table.stride : nullptr, count, to);
    else
      for (int64_t c = 0; c < count; ++c) to[c] = converted<To>(from[c]);
  };
  for (int64_t r = 0; r < rows; r += kWord)
    columns == kTileColumns ? pack(r, kTileColumns) : pack(r, columns);
}

// Fetches the elements of the next panel: rows lie pages apart, where the CPU fetches nothing
// ahead.
template <class From>
void prefetch_panel(const TableRows<From>& table, int64_t first, int64_t rows, int64_t column) {
  if (column >= table.n) return;
  for (int64_t r = first; r < std::min(first + rows, table.k); ++r)
    __builtin_prefetch(table.at(r, column), 0, 2);
}

template <class To, class From>
void turn_rows(const Tensor& table, PackedWeight& packed) {
  constexpr int64_t kTile = 64;  // elements; reads and writes of a tile stay in the cache
  tensor::parallel_for((packed.k + kTile - 1) / kTile, 1, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin * kTile; j < std::min(end * kTile, packed.k); j += kTile)
      for (int64_t i = 0; i < packed.n; i += kTile)
        for (int64_t c = i; c < std::min(i + kTile, packed.n); ++c)
          for (int64_t r = j; r < std::min(j + kTile, packed.k); ++r)
            packed.data.row<To>(c)[r] = converted<To>(table.row<From>(r)[c]);
  });
}

}  // namespace

PackedWeight pack_transposed(const Tensor& table, DType dtype, Isa isa) {
  require(table.rank() == 2 && tensor::is_float(table.dtype()) &&
              (dtype == DType::f32 || dtype == DType::bf16),
          ErrorCode::usage,
          "pack_transposed: table {} of {} for products in {}; expected floats [k, n], for f32 or "
          "bf16",
          table.shape().str(), tensor::name_of(table.dtype()), tensor::name_of(dtype));
  PackedWeight packed{table.size(1), table.size(0), dtype, isa, false, table};
  if (isa >= Isa::avx2) return packed;
  packed.data =
      Tensor::empty({packed.n, packed.k}, dtype, table.is_meta() ? Device::meta : Device::cpu,
                    tensor::MemoryClass::weights);
  if (table.is_meta()) return packed;
  tensor::with_float_type(dtype, [&]<class To>(To) {
    tensor::with_float_type(table.dtype(),
                            [&]<class From>(From) { turn_rows<To, From>(table, packed); });
  });
  return packed;
}

bool is_table(const PackedWeight& weight) {
  return weight.isa >= Isa::avx2 && weight.data.rank() == 2;  // panels have three axes
}

void pack_steps(const PackedWeight& table, int64_t panel, int64_t first, int64_t steps,
                std::byte* out) {
  const int64_t step_rows = step_elements(table.dtype), column = panel * kPanelColumns;
  tensor::with_float_type(table.dtype, [&]<class To>(To) {
    tensor::with_float_type(table.data.dtype(), [&]<class From>(From) {
      const TableRows<From> rows(table.data);
      for (int64_t s = first; s < first + steps; ++s, out += kStepBytes) {
        prefetch_panel(rows, s * step_rows, step_rows, column + kPanelColumns);
        for (int64_t tile = 0; tile < 2; ++tile)
          pack_turned_tile(rows, s, column + tile * kTileColumns,
                           reinterpret_cast<To*>(out + tile * kStepBytes / 2));
      }
    });
  });
}

}  // namespace tessera::kernels
