#include "kernels/packed_transpose.h"

#include <algorithm>
#include <type_traits>

#include "base/fail.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::kernels {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

// A tile of a step of the transpose: words of vertically adjacent elements of the table.
template <class To, class From>
void pack_turned(const Tensor& table, int64_t step, int64_t column, To* out) {
  constexpr int64_t kWord = 4 / sizeof(To), kStep = kStepWords * kWord;
  const int64_t columns = std::clamp<int64_t>(table.size(1) - column, 0, kTileColumns),
                rows = std::min(kStep, table.size(0) - step * kStep);
  if (columns < kTileColumns || rows < kStep) std::fill_n(out, kStep * kTileColumns, To{});
  const auto put = [&](int64_t r, int64_t count) {
    const From* const from = table.row<From>(step * kStep + r) + column;
    To* const to = out + r / kWord * kTileColumns * kWord + r % kWord;
    for (int64_t c = 0; c < count; ++c)
      if constexpr (std::is_same_v<To, From>)
        to[c * kWord] = from[c];
      else
        to[c * kWord] = tensor::from_float<To>(tensor::to_float(from[c]));
  };
  for (int64_t r = 0; r < rows; ++r)
    columns == kTileColumns ? put(r, kTileColumns) : put(r, columns);
}

template <class To, class From>
void turn_panels(const Tensor& table, PackedWeight& packed) {
  const PanelShape shape = panel_shape(packed);
  tensor::parallel_for(shape.steps, 1, [&](int64_t begin, int64_t end) {
    for (int64_t step = begin; step < end; ++step)
      for (int64_t tile = 0; tile < 2 * shape.panels; ++tile) {
        std::byte* const panel =
            packed.data.data<std::byte>() + tile / 2 * shape.steps * kStepBytes;
        pack_turned<To, From>(
            table, step, tile * kTileColumns,
            reinterpret_cast<To*>(panel + step * kStepBytes + tile % 2 * kStepBytes / 2));
      }
  });
}

template <class To, class From>
void turn_rows(const Tensor& table, PackedWeight& packed) {
  constexpr int64_t kTile = 64;  // elements; reads and writes of a tile stay in the cache
  tensor::parallel_for((packed.k + kTile - 1) / kTile, 1, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin * kTile; j < std::min(end * kTile, packed.k); j += kTile)
      for (int64_t i = 0; i < packed.n; i += kTile)
        for (int64_t c = i; c < std::min(i + kTile, packed.n); ++c)
          for (int64_t r = j; r < std::min(j + kTile, packed.k); ++r)
            packed.data.row<To>(c)[r] =
                tensor::from_float<To>(tensor::to_float(table.row<From>(r)[c]));
  });
}

// The shape of a packed [n, k]; nothing is counted.
PackedWeight shape_of(int64_t n, int64_t k, DType dtype, Isa isa) {
  const tensor::Uncounted aside(tensor::Counts::work);
  return pack_weight(Tensor::empty({n, k}, dtype, Device::meta), {}, dtype, isa);
}

}  // namespace

PackedWeight pack_transposed(const Tensor& table, DType dtype, Isa isa) {
  require(table.rank() == 2 && tensor::is_float(table.dtype()) &&
              (dtype == DType::f32 || dtype == DType::bf16),
          ErrorCode::usage,
          "pack_transposed: table {} of {} for products in {}; expected floats [k, n], for f32 or "
          "bf16",
          table.shape().str(), tensor::name_of(table.dtype()), tensor::name_of(dtype));
  PackedWeight packed = shape_of(table.size(1), table.size(0), dtype, isa);
  packed.data =
      Tensor::empty(packed.data.shape(), dtype, table.is_meta() ? Device::meta : Device::cpu,
                    tensor::MemoryClass::weights);
  if (table.is_meta()) return packed;
  tensor::with_float_type(dtype, [&]<class To>(To) {
    tensor::with_float_type(table.dtype(), [&]<class From>(From) {
      isa < Isa::avx2 ? turn_rows<To, From>(table, packed) : turn_panels<To, From>(table, packed);
    });
  });
  return packed;
}

}  // namespace tessera::kernels
