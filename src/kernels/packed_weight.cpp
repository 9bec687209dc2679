#include "kernels/packed_weight.h"

#include <algorithm>
#include <cstring>

#include "base/fail.h"
#include "tensor/scope.h"

namespace tessera::kernels {
namespace {

using tensor::DType;
using tensor::Tensor;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Columns [tile * 16, ...) of the panel layout come from one matrix row each.
template <class To, class From>
void pack_tile(const Tensor& w, int64_t first_row, int64_t steps, std::byte* out) {
  constexpr int64_t kPerWord = 4 / sizeof(To), kStep = kStepWords * kPerWord;
  const int64_t rows = std::min<int64_t>(kTileColumns, w.size(0) - first_row), k = w.size(1);
  for (int64_t s = 0; s < steps; ++s) {
    To* to = reinterpret_cast<To*>(out + s * kStepBytes);
    std::memset(static_cast<void*>(to), 0, kStepBytes / 2);
    const int64_t count = std::min(kStep, k - s * kStep);
    for (int64_t c = 0; c < rows; ++c) {
      const From* from = w.row<From>(first_row + c) + s * kStep;
      for (int64_t i = 0; i < count; ++i)
        to[i / kPerWord * kTileColumns * kPerWord + c * kPerWord + i % kPerWord] =
            tensor::from_float<To>(tensor::to_float(from[i]));
    }
  }
}

template <class To, class From>
void pack_row(const From* from, int64_t count, To* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = tensor::from_float<To>(tensor::to_float(from[i]));
}

void pack_row_major(const Tensor& w, int64_t first_row, PackedWeight& packed) {
  tensor::with_float_type(packed.dtype, [&](auto to) {
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
  tensor::with_float_type(packed.dtype, [&](auto to) {
    tensor::parallel_tasks(shape.panels * 2, [&](int64_t task) {
      const int64_t panel = task / 2, tile = task % 2;
      const Tensor& from = packed.paired && tile == 1 ? up : w;
      const int64_t row = panel * shape.columns + (packed.paired ? 0 : tile * kTileColumns);
      std::byte* out =
          packed.data.data<std::byte>() + panel * shape.steps * kStepBytes + tile * kStepBytes / 2;
      tensor::with_float_type(from.dtype(), [&](auto type) {
        pack_tile<decltype(to), decltype(type)>(from, row, shape.steps, out);
      });
    });
  });
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
  require(dtype == DType::f32 || dtype == DType::bf16, ErrorCode::usage,
          "pack_weight: weights in {} are not supported; choose f32 or bf16",
          tensor::name_of(dtype));
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
    if (w.is_meta()) return packed;
    pack_row_major(w, 0, packed);
    if (paired) pack_row_major(up, packed.n, packed);
    return packed;
  }
  const PanelShape shape = panel_shape(packed);
  packed.data = Tensor::empty({shape.panels, shape.steps, kStepBytes / size_of(dtype)}, dtype,
                              device, tensor::MemoryClass::weights);
  if (!w.is_meta()) pack_panels(w, up, packed);
  return packed;
}

}  // namespace tessera::kernels
