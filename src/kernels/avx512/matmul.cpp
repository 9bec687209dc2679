#include "kernels/matmul.h"

#if defined(__x86_64__)
#include <algorithm>
#include <array>
#include <utility>

#include "base/fail.h"
#include "kernels/avx512/product.h"
#include "kernels/avx512/stream.h"
#include "kernels/avx512/vector.h"
#include "tensor/scope.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {
namespace {

constexpr int kMostRows = 14;  // times two vectors of columns: 28 of 32 registers hold sums

template <bool bf16>
__attribute__((always_inline)) inline __m512 multiply_add(__m512 sum, const std::byte* x,
                                                          __m512 w) {
  if constexpr (bf16) {
    int32_t pair;
    std::memcpy(&pair, x, 4);
    const __m512i both = _mm512_set1_epi32(pair);
    return _mm512_dpbf16_ps(sum, (__m512bh)both, (__m512bh)_mm512_castps_si512(w));
  } else {
    float value;
    std::memcpy(&value, x, 4);
    return _mm512_fmadd_ps(_mm512_set1_ps(value), w, sum);
  }
}

// sums[R][32] = x[R, steps] w[steps, 32], in the order of k.
template <bool bf16, int R>
void block(const std::byte* x, const std::byte* w, int64_t steps, float* sums, Stream& stream) {
  __m512 sum[R][2];
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
  for (int64_t s = 0; s < steps; ++s, x += R * 64, w += kStepBytes) {
    stream.step();
#pragma GCC unroll 4
    for (int word = 0; word < kStepWords; ++word) {
      const __m512 w0 = _mm512_load_ps(w + word * 64);
      const __m512 w1 = _mm512_load_ps(w + kStepBytes / 2 + word * 64);
#pragma GCC unroll 14
      for (int i = 0; i < R; ++i) {
        sum[i][0] = multiply_add<bf16>(sum[i][0], x + i * 64 + word * 4, w0);
        sum[i][1] = multiply_add<bf16>(sum[i][1], x + i * 64 + word * 4, w1);
      }
    }
  }
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i) {
    _mm512_store_ps(sums + i * kPanelColumns, sum[i][0]);
    _mm512_store_ps(sums + i * kPanelColumns + 16, sum[i][1]);
  }
}

using Block = void (*)(const std::byte*, const std::byte*, int64_t, float*, Stream&);
template <bool bf16, size_t... R>
constexpr std::array<Block, sizeof...(R)> blocks(std::index_sequence<R...>) {
  return {block<bf16, static_cast<int>(R) + 1>...};
}

void sweep(const std::byte* x, const RowLayout& layout, const PackedWeight& w, Range panels,
           BlockWriter& writer) {
  static constexpr auto kBf16 = blocks<true>(std::make_index_sequence<kMostRows>());
  static constexpr auto kF32 = blocks<false>(std::make_index_sequence<kMostRows>());
  const auto& kernels = w.dtype == DType::bf16 ? kBf16 : kF32;
  alignas(64) float sums[kMostRows * kPanelColumns];
  const int64_t steps = layout.steps, groups = layout.groups(), bytes = steps * kStepBytes;
  const std::byte* const data = w.data.data<std::byte>();
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    const std::byte* panel = data + p * bytes;
    Stream next(panel + bytes, p + 1 < panels.end ? bytes : 0, groups * steps, groups <= 2 ? 9 : 3);
    for (int64_t g = 0; g < groups; ++g) {
      const Range rows = layout.group(g);
      kernels[static_cast<size_t>(rows.size() - 1)](x + rows.begin * steps * 64, panel, steps, sums,
                                                    next);
      writer.write(rows.begin, rows.size(), p, sums);
    }
  }
}

// Sixteen or thirty-two elements of k as one line of 64 bytes.
void pack_line(const RowSource& source, int64_t row, int64_t k, DType to, std::byte* out) {
  const int64_t at = row * source.stride + k, left = source.k - k;
  if (to == DType::f32) {
    _mm512_store_ps(out, load(source.x, source.dtype, at, lanes(left)));
  } else if (source.dtype == DType::bf16) {
    const auto keep = left >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((1u << left) - 1);
    _mm512_store_si512(out,
                       _mm512_maskz_loadu_epi16(keep, static_cast<const uint16_t*>(source.x) + at));
  } else {
    for (int64_t half = 0; half < 2; ++half) {
      const __m512 v = load(source.x, source.dtype, at + half * 16, lanes(left - half * 16));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + half * 32), to_bf16(v));
    }
  }
}

class EpilogueWriter final : public BlockWriter {
 public:
  EpilogueWriter(const MatmulArgs& args, int64_t first_row, const int32_t* map)
      : args_(args), e_(args.epilogue), first_(first_row), map_(map), n_(args.weight->n) {}

  void write(int64_t row, int64_t rows, int64_t panel, const float* sums) override {
    switch (e_.activation) {
      case Activation::none: return all<Activation::none>(row, rows, panel, sums);
      case Activation::silu: return all<Activation::silu>(row, rows, panel, sums);
      case Activation::gelu_tanh: return all<Activation::gelu_tanh>(row, rows, panel, sums);
      case Activation::gelu_erf: return all<Activation::gelu_erf>(row, rows, panel, sums);
      case Activation::swiglu: return all<Activation::swiglu>(row, rows, panel, sums);
    }
  }

 private:
  template <Activation activation>
  void all(int64_t row, int64_t rows, int64_t panel, const float* sums) const {
    constexpr int kParts = activation == Activation::swiglu ? 1 : 2;
    for (int64_t r = 0; r < rows; ++r, sums += kPanelColumns)
      for (int part = 0; part < kParts; ++part) {
        const int64_t column = (panel * kParts + part) * 16;
        const __mmask16 keep = lanes(n_ - column);
        if (!keep) break;
        __m512 v = _mm512_load_ps(sums + part * 16);
        if constexpr (activation == Activation::swiglu)
          v = _mm512_mul_ps(silu(v), _mm512_load_ps(sums + 16));
        else if (e_.bias)
          v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(keep, e_.bias + column));
        v = activate<activation>(v);
        finish(first_ + row + r, column, keep, v);
      }
  }

  void finish(int64_t row, int64_t column, __mmask16 keep, __m512 v) const {
    if (e_.gate) {
      const int64_t from = e_.row_of ? e_.row_of[row] : 0;
      const __m512 gate = _mm512_maskz_loadu_ps(keep, e_.gate + from * e_.gate_stride + column);
      v = _mm512_mul_ps(v, gate);
    }
    if (e_.residual)
      v = _mm512_add_ps(
          v, load(e_.residual, e_.residual_dtype, row * e_.residual_stride + column, keep));
    const int64_t to = map_ ? map_[row] : row;
    store(args_.y, args_.y_dtype, to * args_.y_stride + column, keep, v);
  }

  const MatmulArgs& args_;
  const Epilogue& e_;
  int64_t first_;
  const int32_t* map_;
  int64_t n_;
};

// Few rows: they are packed once, and each task takes some panels for all of them.
void multiply_by_panels(const Engine& e, const MatmulArgs& args, const PanelShape& shape) {
  const PackedWeight& w = *args.weight;
  const RowLayout layout{args.rows, shape.steps, e.most, e.padded};
  std::byte* const x = thread_scratch(1).at_least(layout.bytes());
  const RowSource source{args.x, args.x_dtype, args.x_stride, w.k, nullptr, 1};
  pack_rows(source, 0, layout, w.dtype, x);
  const int64_t tasks = std::min<int64_t>(shape.panels, 4 * tensor::thread_count());
  tensor::parallel_tasks(tasks, [&](int64_t task) {
    const auto writer = epilogue_writer(args, 0, nullptr);
    e.sweep(x, layout, w, share(shape.panels, tasks, task), *writer);
  });
}

// Many rows: each task packs as many as stay in its L2 and passes all panels by them.
void multiply_by_rows(const Engine& e, const MatmulArgs& args, const PanelShape& shape,
                      int64_t parts) {
  const PackedWeight& w = *args.weight;
  const int64_t units = ceil_div(args.rows, e.most);
  const RowSource source{args.x, args.x_dtype, args.x_stride, w.k, nullptr, 1};
  tensor::parallel_tasks(parts, [&](int64_t part) {
    const Range unit = share(units, parts, part);
    const int64_t first = unit.begin * e.most;
    const RowLayout layout{std::min(unit.end * e.most, args.rows) - first, shape.steps, e.most,
                           e.padded};
    std::byte* const x = thread_scratch(0).at_least(layout.bytes());
    pack_rows(source, first, layout, w.dtype, x);
    const auto writer = epilogue_writer(args, first, nullptr);
    e.sweep(x, layout, w, {0, shape.panels}, *writer);
  });
}

}  // namespace

const Engine& engine() {
  static constexpr Engine kEngine{kMostRows, false, sweep};
  return kEngine;
}

void pack_rows(const RowSource& source, int64_t first, const RowLayout& layout, DType to,
               std::byte* out) {
  for (int64_t g = 0; g < layout.groups(); ++g) {
    const Range rows = layout.group(g);
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const int64_t from = r >= layout.rows ? -1
                           : source.ids     ? source.ids[first + r] / source.slots
                                            : first + r;
      std::byte* line = out + (rows.begin * layout.steps + r - rows.begin) * 64;
      for (int64_t s = 0; s < layout.steps; ++s, line += rows.size() * 64)
        if (from < 0)
          std::memset(line, 0, 64);
        else
          pack_line(source, from, s * step_elements(to), to, line);
    }
  }
}

std::unique_ptr<BlockWriter> epilogue_writer(const MatmulArgs& args, int64_t first_row,
                                             const int32_t* map) {
  return std::make_unique<EpilogueWriter>(args, first_row, map);
}

std::byte* Scratch::at_least(int64_t bytes) {
  if (bytes > size_) {
    const int64_t rounded = ceil_div(bytes + 4096, 4096) * 4096;  // loads may run one step ahead
    data_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, static_cast<size_t>(rounded))));
    size_ = data_ ? rounded - 4096 : 0;
    require(data_ != nullptr, ErrorCode::memory,
            "a product needs {} bytes of scratch memory; free some", rounded);
  }
  return data_.get();
}

Scratch& thread_scratch(int index) {
  static thread_local Scratch scratch[2];  // no result depends on what it holds
  return scratch[index];
}

int64_t resident_rows(const Engine& e, int64_t steps) {
  return std::max<int64_t>(1, kRowBytes / (std::max<int64_t>(steps, 1) * 64) / e.most) * e.most;
}

void multiply(const Engine& e, const MatmulArgs& args) {
  if (args.rows == 0) return;
  const PanelShape shape = panel_shape(*args.weight);
  const int64_t threads = tensor::thread_count(),
                parts = ceil_div(args.rows, resident_rows(e, shape.steps));
  if (parts < threads || args.rows <= e.most) return multiply_by_panels(e, args, shape);
  multiply_by_rows(e, args, shape,
                   std::min(ceil_div(parts, threads) * threads, ceil_div(args.rows, e.most)));
}

void matmul(const MatmulArgs& args) { multiply(engine(), args); }

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
