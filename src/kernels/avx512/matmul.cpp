#include "kernels/matmul.h"

#if defined(__x86_64__)
#include <algorithm>
#include <array>
#include <utility>

#include "base/fail.h"
#include "kernels/avx512/product.h"
#include "kernels/avx512/stream.h"
#include "kernels/avx512/vector.h"
#include "kernels/unit.h"
#include "tensor/scope.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {
namespace {

constexpr int kMostRows = 14;  // times two vectors of columns: 28 of 32 registers hold sums

// f32 weights; bf16 widened in registers; bf16 widened in memory before; bf16 dot products.
enum class Way { f32, widen, widened, dot };

// One part of a word of k in both tiles: an even or odd element of bf16, otherwise all of it.
template <Way unit>
struct Half {
  static constexpr bool kPairs = unit == Way::widen || unit == Way::widened;
  static constexpr int kCount = kPairs ? 2 : 1;                       // parts of a word
  static constexpr int64_t kBytes = unit == Way::widened ? 256 : 64;  // from one word to the next
  static constexpr int64_t kTile = unit == Way::widened ? 64 : kStepBytes / 2;
  static constexpr int64_t kStep = unit == Way::widened ? 2 * kStepBytes : kStepBytes;
  __m512 w[2];

  __attribute__((always_inline)) Half(const std::byte* from, int half) {
    if constexpr (unit == Way::widened) from += half * 128;
#pragma GCC unroll 2
    for (int t = 0; t < 2; ++t) {
      w[t] = _mm512_load_ps(from + t * kTile);
      if constexpr (unit == Way::widen) w[t] = half ? odd(w[t]) : even(w[t]);
    }
  }
  static __m512 even(__m512 pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
  }
  static __m512 odd(__m512 pairs) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(-65536)));
  }
  __attribute__((always_inline)) void add(const std::byte* x, __m512 (&sum)[2]) const {
    float value;
    std::memcpy(&value, x, 4);
    const __m512 both = _mm512_set1_ps(value);
#pragma GCC unroll 2
    for (int t = 0; t < 2; ++t)
      if constexpr (unit == Way::dot)
        sum[t] = _mm512_dpbf16_ps(sum[t], (__m512bh)both, (__m512bh)w[t]);
      else
        sum[t] = _mm512_fmadd_ps(both, w[t], sum[t]);
  }
};

// sums[R][32] (+)= x[R, steps] w[steps, 32], in the order of k.
template <Way unit, int R>
void block(const std::byte* x, const std::byte* w, int64_t steps, float* sums, bool first,
           Stream& stream) {
  constexpr int kHalves = Half<unit>::kCount;
  constexpr int64_t kLine = 4 * kHalves * kStepWords;
  __m512 sum[R][2];
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 2
    for (int t = 0; t < 2; ++t)
      sum[i][t] = first ? _mm512_setzero_ps() : _mm512_load_ps(sums + i * kPanelColumns + t * 16);
  for (int64_t s = 0; s < steps; ++s, x += R * kLine, w += Half<unit>::kStep) {
    stream.step();
#pragma GCC unroll 4
    for (int word = 0; word < kStepWords; ++word)
#pragma GCC unroll 4
      for (int h = 0; h < kHalves; ++h) {
        const Half<unit> half(w + word * Half<unit>::kBytes, h);
#pragma GCC unroll 14
        for (int i = 0; i < R; ++i) half.add(x + i * kLine + (word * kHalves + h) * 4, sum[i]);
      }
  }
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i) {
    _mm512_store_ps(sums + i * kPanelColumns, sum[i][0]);
    _mm512_store_ps(sums + i * kPanelColumns + 16, sum[i][1]);
  }
}

using Block = void (*)(const std::byte*, const std::byte*, int64_t, float*, bool, Stream&);
using Blocks = std::array<Block, kMostRows>;
template <Way unit, size_t... R>
constexpr Blocks blocks(std::index_sequence<R...>) {
  return {block<unit, static_cast<int>(R) + 1>...};
}
template <Way unit>
constexpr Blocks kBlocks = blocks<unit>(std::make_index_sequence<kMostRows>());

// One panel of bf16 as [word][half][tile][16 columns] of f32: the halves in the order of k.
void widen_panel(const std::byte* from, int64_t steps, std::byte* to) {
  for (int64_t s = 0; s < steps; ++s, from += kStepBytes)
    for (int64_t word = 0; word < kStepWords; ++word, to += 256)
      for (int64_t t = 0; t < 2; ++t) {
        const __m512 v = _mm512_load_ps(from + t * kStepBytes / 2 + word * 64);
        _mm512_store_ps(to + t * 64, Half<Way::widen>::even(v));
        _mm512_store_ps(to + t * 64 + 128, Half<Way::widen>::odd(v));
      }
}

// So many groups share a panel: then a chunk of it, widened once, stays in L1 for all of them. Sums
// go on where they stopped, so the cut does not change a bit.
constexpr int64_t kGroupsToShare = 4, kChunkBytes = 24 << 10;

template <Way bf16>
void sweep(const std::byte* x, const RowLayout& layout, const PackedWeight& w, Range panels,
           BlockWriter& writer) {
  const int64_t steps = layout.steps, groups = layout.groups(), bytes = steps * kStepBytes;
  const bool share_panel = groups >= kGroupsToShare;
  const bool widen = share_panel && bf16 == Way::widen && w.dtype == DType::bf16;
  const Blocks& kernels = w.dtype != DType::bf16 ? kBlocks<Way::f32>
                          : widen                ? kBlocks<Way::widened>
                                                 : kBlocks<bf16>;
  const int64_t most = share_panel ? kChunkBytes / kStepBytes / (widen ? 2 : 1) : steps;
  const int64_t chunks = ceil_div(steps, most);
  std::byte* const wide = thread_scratch(2).at_least(kChunkBytes + layout.rows * kPanelColumns * 4);
  float* const sums = reinterpret_cast<float*>(wide + kChunkBytes);
  const std::byte* const data = w.data.data<std::byte>();
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    const std::byte* panel = data + p * bytes;
    Stream next(panel + bytes, p + 1 < panels.end ? bytes : 0, groups * steps, groups <= 2 ? 9 : 3);
    for (int64_t c = 0; c < chunks; ++c) {
      const Range chunk = share(steps, chunks, c);
      const std::byte* from = panel + chunk.begin * kStepBytes;
      if (widen) widen_panel(from, chunk.size(), wide);
      for (int64_t g = 0; g < groups; ++g) {
        const Range rows = layout.group(g);
        kernels[static_cast<size_t>(rows.size() - 1)](
            x + (rows.begin * steps + chunk.begin * rows.size()) * layout.line, widen ? wide : from,
            chunk.size(), sums + rows.begin * kPanelColumns, c == 0, next);
        if (c + 1 == chunks)
          writer.write(rows.begin, rows.size(), p, sums + rows.begin * kPanelColumns);
      }
    }
  }
}

// The elements of one step of k; `stored` says how.
void pack_line(const RowSource& source, int64_t row, int64_t k, DType weight, DType stored,
               std::byte* out) {
  for (int64_t i = 0; i < step_elements(weight); i += 16) {
    const __m512 v =
        load(source.x, source.dtype, row * source.stride + k + i, lanes(source.k - k - i));
    if (weight != DType::bf16)
      _mm512_store_ps(out + i * 4, v);
    else if (stored == DType::bf16)
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + i * 2), to_bf16(v));
    else
      _mm512_store_ps(out + i * 4, widen(to_bf16(v)));
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
      case Activation::relu: return all<Activation::relu>(row, rows, panel, sums);
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
  const RowLayout layout = e.layout(args.rows, shape.steps, w.dtype);
  std::byte* const x = thread_scratch(1).at_least(layout.bytes());
  const RowSource source{args.x, args.x_dtype, args.x_stride, w.k, nullptr, 1};
  pack_rows(e, source, 0, layout, w.dtype, x);
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
    const int64_t rows = std::min(unit.end * e.most, args.rows) - first;
    const RowLayout layout = e.layout(rows, shape.steps, w.dtype);
    std::byte* const x = thread_scratch(0).at_least(layout.bytes());
    pack_rows(e, source, first, layout, w.dtype, x);
    const auto writer = epilogue_writer(args, first, nullptr);
    e.sweep(x, layout, w, {0, shape.panels}, *writer);
  });
}

}  // namespace

const Engine& multiply_add_engine() {
  static constexpr Engine kEngine{kMostRows, false, DType::f32, sweep<Way::widen>};
  return kEngine;
}

const Engine& dot_engine() {
  static constexpr Engine kEngine{kMostRows, false, DType::bf16, sweep<Way::dot>};
  return kEngine;
}

const Engine& engine() { return active_unit() == Unit::dot ? dot_engine() : multiply_add_engine(); }

const Engine& engine_for(DType weight) { return weight == DType::i8 ? digit_engine() : engine(); }

void pack_rows(const Engine& e, const RowSource& source, int64_t first, const RowLayout& layout,
               DType weight, std::byte* out) {
  const DType stored = e.rows_for(weight);
  for (int64_t g = 0; g < layout.groups(); ++g) {
    const Range rows = layout.group(g);
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const int64_t from = r >= layout.rows ? -1
                           : source.ids     ? source.ids[first + r] / source.slots
                                            : first + r;
      if (e.digits) {
        pack_digits(source, from, r, layout, out);
        continue;
      }
      std::byte* line = out + (rows.begin * layout.steps + r - rows.begin) * layout.line;
      for (int64_t s = 0; s < layout.steps; ++s, line += rows.size() * layout.line) {
        if (from < 0)
          std::memset(line, 0, static_cast<size_t>(layout.line));
        else
          pack_line(source, from, s * step_elements(weight), weight, stored, line);
      }
    }
  }
}

std::unique_ptr<BlockWriter> epilogue_writer(const MatmulArgs& args, int64_t first_row,
                                             const int32_t* map) {
  return std::make_unique<EpilogueWriter>(args, first_row, map);
}

int64_t resident_rows(const Engine& e, int64_t steps, DType weight) {
  const int64_t row = e.layout(1, std::max<int64_t>(steps, 1), weight).bytes();
  return std::max<int64_t>(1, kRowBytes / row / e.most) * e.most;
}

void multiply(const Engine& e, const MatmulArgs& args) {
  if (args.rows == 0) return;
  const PanelShape shape = panel_shape(*args.weight);
  const int64_t threads = tensor::thread_count(), units = ceil_div(args.rows, e.most);
  const int64_t parts = ceil_div(args.rows, resident_rows(e, shape.steps, args.weight->dtype));
  if (parts < threads || units == 1) return multiply_by_panels(e, args, shape);
  multiply_by_rows(e, args, shape, std::min(ceil_div(parts, threads) * threads, units));
}

void matmul(const MatmulArgs& args) { multiply(engine_for(args.weight->dtype), args); }

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
