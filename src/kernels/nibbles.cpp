#include "kernels/nibbles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/fail.h"
#include "tensor/scope.h"

namespace tessera::kernels {
namespace {

using tensor::BFloat16;
using tensor::DType;
using tensor::Tensor;

constexpr size_t kLanes = 16;                     // number of sums that a compiler vectorises
constexpr float kSmallest = 0x1p-100f;            // smallest magnitude; smaller groups become zeros
constexpr int kScales = 17;                       // candidate scales
constexpr float kFirst = 22.0f / 32.0f;           // first candidate, in eighths of the maximum
constexpr int64_t kStepColumns = 2 * kStepWords;  // bytes of a row of int4 in a step

// A group of a row, zero-padded.
using Group = std::array<float, kGroupElements>;

float whole_of(float value, float inverse) {
  return std::min(7.0f, std::max(-8.0f, nearest_whole(value * inverse)));
}

// Squared error of a group in int4 with a scale.
float squared_error(const Group& x, float scale) {
  std::array<float, kLanes> sums{};
  const float inverse = 1 / scale;
  for (size_t i = 0; i < x.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float off = whole_of(x[i + lane], inverse) * scale - x[i + lane];
      sums[lane] += off * off;
    }
  return std::accumulate(sums.begin(), sums.end(), 0.0f);
}

BFloat16 scale_of(const Group& x) {
  float largest = 0, nan_sum = 0;
  for (const float value : x) {
    if (std::fabs(value) > std::fabs(largest)) largest = value;
    nan_sum += value * 0;  // NaN stays NaN
  }
  if (nan_sum != 0) return tensor::to_bfloat16(nan_sum);
  if (std::fabs(largest) < kSmallest) return {};
  BFloat16 best = tensor::to_bfloat16(largest / -8);
  float least = INFINITY;
  for (int i = 0; i < kScales; ++i) {
    const BFloat16 scale =
        tensor::to_bfloat16(largest / -8 * (kFirst + static_cast<float>(i) / 32.0f));
    const float error = squared_error(x, tensor::to_float(scale));
    if (error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

template <class T>
void quantise_row(const T* row, int64_t k, uint8_t* nibbles, BFloat16* scales) {
  for (int64_t g = 0; g < groups_of(k); ++g) {
    const int64_t first = g * kGroupElements, count = std::min(kGroupElements, k - first);
    Group x{};
    for (int64_t i = 0; i < count; ++i)
      x[static_cast<size_t>(i)] = tensor::to_float(row[first + i]);
    scales[g] = scale_of(x);
    const float scale = tensor::to_float(scales[g]), inverse = scale != 0 ? 1 / scale : 0;
    for (int64_t i = 0; i < count; i += 2) {
      const auto four = [&](int64_t at) {
        const float whole = whole_of(x[static_cast<size_t>(at)], inverse);
        return static_cast<unsigned>(static_cast<int>(whole)) & 15u;
      };
      nibbles[(first + i) / 2] = static_cast<uint8_t>(four(i) | four(i + 1) << 4);
    }
  }
}

void check_nibbles(const StoredMatrix& w, DType dtype) {
  const Tensor& values = w.values;
  const int64_t groups = values.rank() == 2 ? groups_of(2 * values.size(1)) : 0;
  require(dtype == DType::i8 && values.rank() == 2 && w.scales.defined() &&
              w.scales.dtype() == DType::bf16 && w.scales.rank() == 2 &&
              w.scales.size(0) == values.size(0) && w.scales.size(1) == groups,
          ErrorCode::usage,
          "pack_weight: nibbles {} for products in {}; expected u8 [n, k / 2] for i8, with scales "
          "bf16 [n, {}]",
          values.shape().str(), tensor::name_of(dtype), groups);
}

// Spreads four nibbles to the low halves of four bytes.
uint32_t spread(uint16_t nibbles) {
  const uint32_t two = (nibbles | uint32_t{nibbles} << 8) & 0x00ff00ffu;
  return (two | two << 4) & 0x0f0f0f0fu;
}

// The part of a row in a step, zero-padded.
std::array<uint16_t, kStepWords> words_of(const Tensor& values, int64_t row, int64_t step) {
  std::array<uint16_t, kStepWords> words{};
  const int64_t first = step * kStepColumns;
  if (row < values.size(0))
    std::memcpy(words.data(), values.row<uint8_t>(row) + first,
                static_cast<size_t>(std::min(kStepColumns, values.size(1) - first)));
  return words;
}

void pack_step(const StoredMatrix& low, int64_t low_row, const StoredMatrix& high, int64_t high_row,
               int64_t step, std::byte* out) {
  std::array<std::array<uint32_t, kStepWords>, kTileColumns> tile;
  for (size_t c = 0; c < kTileColumns; ++c) {
    const auto first = words_of(low.values, low_row + static_cast<int64_t>(c), step),
               second = words_of(high.values, high_row + static_cast<int64_t>(c), step);
    for (size_t word = 0; word < kStepWords; ++word)
      tile[c][word] = spread(first[word]) | spread(second[word]) << 4;
  }
  auto* words = reinterpret_cast<uint32_t*>(out);
  for (size_t word = 0; word < kStepWords; ++word)
    for (size_t c = 0; c < kTileColumns; ++c) *words++ = tile[c][word];
  auto* scales = reinterpret_cast<BFloat16*>(out + kNibbleBytes);
  for (int64_t group = 2 * step; group < 2 * step + 2; ++group)
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      const StoredMatrix& from = c < kTileColumns ? low : high;
      const int64_t row = c < kTileColumns ? low_row + c : high_row + c - kTileColumns;
      const bool there = row < from.scales.size(0) && group < from.scales.size(1);
      *scales++ = there ? from.scales.row<BFloat16>(row)[group] : BFloat16{};
    }
}

void pack_panels(const StoredMatrix& w, const StoredMatrix& up, PackedWeight& packed) {
  const PanelShape shape = panel_shape(packed);
  tensor::parallel_tasks(shape.panels, [&](int64_t panel) {
    const int64_t row = panel * shape.columns;
    std::byte* out = packed.data.data<std::byte>() + panel * shape.steps * kNibbleStepBytes;
    for (int64_t step = 0; step < shape.steps; ++step, out += kNibbleStepBytes)
      pack_step(w, row, packed.paired ? up : w, packed.paired ? row : row + kTileColumns, step,
                out);
  });
}

// Stacks both tensors.
void join(const Tensor& first, const Tensor& second, const Tensor& into) {
  tensor::copy_into(into.slice(0, 0, first.size(0)), first);
  if (second.defined()) tensor::copy_into(into.slice(0, first.size(0), into.size(0)), second);
}

}  // namespace

StoredMatrix quantise_groups(const Tensor& w) {
  require(w.rank() == 2 && tensor::is_float(w.dtype()) && w.size(1) % 2 == 0, ErrorCode::usage,
          "quantise_groups: weight {} of {}; expected floats [n, k] with an even k",
          w.shape().str(), tensor::name_of(w.dtype()));
  const int64_t n = w.size(0), k = w.size(1);
  StoredMatrix matrix(Tensor::empty({n, k / 2}, DType::u8),
                      Tensor::empty({n, groups_of(k)}, DType::bf16));
  tensor::with_float_type(w.dtype(), [&](auto type) {
    tensor::parallel_for(n, 4, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        quantise_row(w.row<decltype(type)>(r), k, matrix.values.row<uint8_t>(r),
                     matrix.scales.row<BFloat16>(r));
    });
  });
  return matrix;
}

double relative_error(const StoredMatrix& quantised, const Tensor& w) {
  const bool nibbles = holds_nibbles(quantised);
  const auto value_of = [&](int64_t r, int64_t i) {
    if (!nibbles)
      return double{quantised.scales.data<float>()[r]} * quantised.values.row<int8_t>(r)[i];
    const BFloat16 scale = quantised.scales.row<BFloat16>(r)[i / kGroupElements];
    return double{tensor::to_float(scale)} * nibble(quantised.values.row<uint8_t>(r), i);
  };
  std::vector<double> errors(static_cast<size_t>(w.size(0))), squares = errors;
  tensor::with_float_type(w.dtype(), [&](auto type) {
    tensor::parallel_for(w.size(0), 4, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t i = 0; i < w.size(1); ++i) {
          const double value = tensor::to_float(w.row<decltype(type)>(r)[i]);
          const double off = value_of(r, i) - value;
          errors[static_cast<size_t>(r)] += off * off;
          squares[static_cast<size_t>(r)] += value * value;
        }
    });
  });
  const double all = std::accumulate(squares.begin(), squares.end(), 0.0);
  return all > 0 ? std::sqrt(std::accumulate(errors.begin(), errors.end(), 0.0) / all) : 0;
}

bool holds_nibbles(const StoredMatrix& w) {
  return w.values.defined() && w.values.dtype() == DType::u8;
}

PackedWeight pack_nibbles(const StoredMatrix& w, const StoredMatrix& up, DType dtype, Isa isa) {
  check_nibbles(w, dtype);
  const bool paired = up.values.defined(), meta = w.values.is_meta();
  if (paired) check_nibbles(up, dtype);
  require(!paired || (holds_nibbles(up) && up.values.shape() == w.values.shape() &&
                      up.values.is_meta() == meta),
          ErrorCode::usage, "pack_weight: gate {} and up do not match; expected equal shapes",
          w.values.shape().str());
  const int64_t n = w.values.size(0), k = 2 * w.values.size(1), rows = paired ? 2 * n : n;
  const tensor::Device device = meta ? tensor::Device::meta : tensor::Device::cpu;
  PackedWeight packed{n, k, DType::i8, isa, paired, {}};
  packed.int4 = true;
  const auto make = [&](const tensor::Shape& shape, DType type) {
    return Tensor::empty(shape, type, device, tensor::MemoryClass::weights);
  };
  if (isa < Isa::avx2) {
    packed.data = make({rows, k / 2}, DType::u8);
    packed.scales = make({rows, groups_of(k)}, DType::bf16);
    if (meta) return packed;
    join(w.values, up.values, packed.data);
    join(w.scales, up.scales, packed.scales);
    return packed;
  }
  const PanelShape shape = panel_shape(packed);
  packed.data = make({shape.panels, shape.steps, kNibbleStepBytes}, DType::u8);
  if (!meta) pack_panels(w, up, packed);
  return packed;
}

}  // namespace tessera::kernels
