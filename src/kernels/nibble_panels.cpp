#include "kernels/nibble_panels.h"

#include <algorithm>
#include <cstring>

#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::kernels {
namespace {

using tensor::BFloat16;
using tensor::DType;
using tensor::Tensor;

// Two bytes of a row from the low halves of four bytes.
uint16_t joined(uint32_t halves) {
  const uint32_t low = halves & 0x0f0f0f0fu, two = (low | low >> 4) & 0x00ff00ffu;
  return static_cast<uint16_t>(two | two >> 8);
}

// A step of `count` rows from `first` on; `from` are the step's bytes, `tile` the half of them.
void rows_of_step(const std::byte* from, int64_t tile, int64_t step, int64_t first, int64_t count,
                  const StoredMatrix& to) {
  const int64_t width = to.values.size(1), groups = to.scales.size(1);
  for (int64_t word = 0; word < kStepWords; ++word)
    for (int64_t c = 0; c < count; ++c) {
      uint32_t bytes;
      std::memcpy(&bytes, from + (word * kTileColumns + c) * 4, 4);
      const uint16_t two = joined(bytes >> 4 * tile);
      const int64_t at = (step * kStepWords + word) * 2;
      std::memcpy(to.values.row<uint8_t>(first + c) + at, &two,
                  static_cast<size_t>(std::clamp<int64_t>(width - at, 0, 2)));
    }
  for (int64_t i = 0; i < 2 && 2 * step + i < groups; ++i)
    for (int64_t c = 0; c < count; ++c)
      std::memcpy(to.scales.row<BFloat16>(first + c) + 2 * step + i,
                  from + kNibbleBytes + i * kGroupScaleBytes + (tile * kTileColumns + c) * 2, 2);
}

}  // namespace

bool holds_nibbles(const StoredPanels& panels) { return panels.values.dtype() == DType::u8; }

std::array<StoredMatrix, 2> rows_of_nibbles(const StoredPanels& p) {
  const PanelShape shape = panel_shape({p.n, p.k, DType::i8, Isa::avx2, p.paired, p.values});
  std::array<StoredMatrix, 2> rows;
  const tensor::Uncounted aside(tensor::Counts::work);  // they pass, as what is read of a file
  for (size_t i = 0; i < (p.paired ? 2 : 1); ++i)
    rows[i] = {Tensor::empty({p.n, p.k / 2}, DType::u8),
               Tensor::empty({p.n, groups_of(p.k)}, DType::bf16)};
  tensor::parallel_tasks(shape.panels * 2, [&](int64_t task) {
    const int64_t panel = task / 2, tile = task % 2;
    const int64_t first = panel * shape.columns + (p.paired ? 0 : tile * kTileColumns);
    const int64_t count = std::clamp<int64_t>(p.n - first, 0, kTileColumns);
    const std::byte* from = p.values.data<std::byte>() + panel * shape.steps * kNibbleStepBytes;
    for (int64_t step = 0; step < shape.steps; ++step, from += kNibbleStepBytes)
      rows_of_step(from, tile, step, first, count, rows[p.paired ? static_cast<size_t>(tile) : 0]);
  });
  return rows;
}

}  // namespace tessera::kernels
