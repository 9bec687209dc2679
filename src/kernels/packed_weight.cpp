#include "kernels/packed_weight.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/nibble_panels.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::kernels {
namespace {

using tensor::Device;
using tensor::DType;
using tensor::Tensor;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

PanelShape panel_shape(const PackedWeight& weight) {
  const int64_t columns = weight.paired ? kTileColumns : kPanelColumns;
  return {ceil_div(weight.n, columns), ceil_div(weight.k, step_elements(weight.dtype)), columns};
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
  packed.scales = Tensor::zeros({shape.panels * kPanelColumns}, DType::f32, Device::cpu,
                                tensor::MemoryClass::weights);
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
