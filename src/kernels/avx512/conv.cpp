#include "kernels/avx512/conv.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/avx512/conv_micro.h"
#include "kernels/avx512/product.h"
#include "kernels/packed_weight.h"
#include "kernels/scratch.h"
#include "tensor/scope.h"

namespace tessera::kernels::avx512 {
namespace {

using tensor::MemoryClass;
using tensor::Tensor;

constexpr int64_t kTileWidth = 64, kTilePixels = 512;
constexpr int64_t kTileBytes = 768 << 10;  // input of a tile; fits L2
constexpr int64_t kChunkWords = 128;       // words of a panel chunk; fits L1, widened to half

// A product over a tile: filter taps and output pixels.
struct Pass {
  const std::byte* panels = nullptr;
  std::vector<std::array<int64_t, 2>> taps;  // line and column in the copied tile
  int64_t first_line = 0, first_column = 0;  // output pixel of tile pixel (0, 0)
};

// A convolution cut into tiles of `lines` x `columns` output pixels for each pass.
struct Job {
  const ConvArgs& args;
  ConvPanels panels;
  std::vector<Pass> passes;
  int64_t out_step = 1;              // step in output pixels between tile pixels
  int64_t in_step = 1;               // step in the copied tile
  int64_t height = 0, width = 0;     // size in tile pixels
  int64_t reach_y = 0, reach_x = 0;  // extra lines and columns of the copied tile
  int64_t pad_top = 0, pad_left = 0;
  bool halved = false;             // the copied tile belongs to the doubled image
  DType tile = DType::f32;         // element type: the filter's dtype
  int64_t lines = 0, columns = 0;  // size of a tile

  bool widens() const { return tile != args.weight->dtype; }
  bool int8() const { return tile == DType::i8; }
  int64_t pixel_bytes() const {
    return panels.in_padded() * size_of(tile) + (int8() ? int64_t{sizeof(PixelNumbers)} : 0);
  }
  int64_t in_lines() const { return (lines - 1) * in_step + reach_y; }
  int64_t in_columns() const { return (columns - 1) * in_step + reach_x; }
};

// Element (output channel, tap, input channel) of a packed filter.
template <class T>
float element(const PackedConv& w, const ConvPanels& p, int64_t o, int64_t tap, int64_t i) {
  return tensor::to_float(w.data.data<T>()[p.at(o / kConvColumns, tap, i / p.per_word,
                                                o % kConvColumns, i % p.per_word)]);
}

// Taps of a 3-tap filter that share a pixel of the image before doubling: phase 0 uses (before: tap
// 0), (here: 1 + 2), phase 1 (here: 0 + 1), (after: 2).
constexpr int kFoldBegin[2][2] = {{0, 1}, {0, 2}}, kFoldEnd[2][2] = {{1, 3}, {2, 3}};

// Sums taps that share a pixel in a doubled image: four filters of 2 x 2.
template <class T>
void fold(const PackedConv& w, const ConvPanels& from, const ConvPanels& to, T* out) {
  std::memset(static_cast<void*>(out), 0, static_cast<size_t>(4 * to.elements()) * sizeof(T));
  tensor::parallel_for(w.out, 16, [&](int64_t first, int64_t last) {
    for (int64_t o = first; o < last; ++o)
      for (int64_t part = 0; part < 16; ++part) {
        const int64_t py = part >> 3, px = part >> 2 & 1, ty = part >> 1 & 1, tx = part & 1;
        T* phase = out + (py * 2 + px) * to.elements();
        for (int64_t i = 0; i < w.in; ++i) {
          float sum = 0;
          for (int y = kFoldBegin[py][ty]; y < kFoldEnd[py][ty]; ++y)
            for (int x = kFoldBegin[px][tx]; x < kFoldEnd[px][tx]; ++x)
              sum += element<T>(w, from, o, y * 3 + x, i);
          phase[to.at(o / kConvColumns, ty * 2 + tx, i / to.per_word, o % kConvColumns,
                      i % to.per_word)] = tensor::from_float<T>(sum);
        }
      }
  });
}

const Tensor& folded_filter(const PackedConv& w, const ConvPanels& from, const ConvPanels& to) {
  ConvDerived& derived = *w.derived;
  const std::lock_guard lock(derived.mutex);
  if (derived.folded.defined()) return derived.folded;
  derived.folded =
      Tensor::empty({4 * to.elements()}, w.dtype, tensor::Device::cpu, MemoryClass::weights);
  if (w.dtype == DType::bf16)
    fold(w, from, to, derived.folded.data<tensor::BFloat16>());
  else
    fold(w, from, to, derived.folded.data<float>());
  return derived.folded;
}

// Reduces the work to 4/9: each phase of the doubled image is a 2 x 2 filter over the original
// image.
Job folded_job(const ConvArgs& args) {
  const PackedConv& w = *args.weight;
  const ConvPanels whole(w.out, w.in, 9, w.dtype);
  Job job{args, ConvPanels(w.out, w.in, 4, w.dtype), {}};
  const Tensor& filter = folded_filter(w, whole, job.panels);
  for (int64_t phase = 0; phase < 4; ++phase) {
    const int64_t py = phase / 2, px = phase % 2;
    Pass pass{filter.data<std::byte>() + phase * job.panels.elements() * size_of(w.dtype)};
    for (int64_t tap = 0; tap < 4; ++tap) pass.taps.push_back({tap / 2 + py, tap % 2 + px});
    pass.first_line = py;
    pass.first_column = px;
    job.passes.push_back(std::move(pass));
  }
  job.out_step = 2;
  job.height = args.height;
  job.width = args.width;
  job.reach_y = job.reach_x = 3;
  job.pad_top = job.pad_left = 1;
  return job;
}

Job plain_job(const ConvArgs& args) {
  const PackedConv& w = *args.weight;
  Job job{args, ConvPanels(w.out, w.in, w.kh * w.kw, w.dtype), {}};
  Pass pass{w.data.data<std::byte>()};
  for (int64_t tap = 0; tap < w.kh * w.kw; ++tap) pass.taps.push_back({tap / w.kw, tap % w.kw});
  job.passes.push_back(std::move(pass));
  job.in_step = args.stride;
  job.height = args.out_height;
  job.width = args.out_width;
  job.reach_y = w.kh;
  job.reach_x = w.kw;
  job.pad_top = args.pad_top;
  job.pad_left = args.pad_left;
  job.halved = args.upsample;
  return job;
}

Job job_of(const ConvArgs& args) {
  const PackedConv& w = *args.weight;
  const bool folds = args.upsample && w.dtype != DType::i8 && w.kh == 3 && w.kw == 3 &&
                     args.stride == 1 && args.pad_top == 1 && args.pad_left == 1 &&
                     args.out_height == 2 * args.height && args.out_width == 2 * args.width;
  Job job = folds ? folded_job(args) : plain_job(args);
  job.tile = w.dtype == DType::i8 ? w.dtype : engine().rows_for(w.dtype);
  job.columns = std::min(job.width, kTileWidth);
  job.lines = std::min(job.height, kTilePixels / job.columns);
  const int64_t pixel = job.pixel_bytes();
  while (job.lines > 2 && job.in_lines() * job.in_columns() * pixel > kTileBytes) job.lines /= 2;
  return job;
}

TESSERA_AVX512_BEGIN

// Channels [i, i + 16) of a pixel after scale, shift and SiLU; zeros behind the last.
TESSERA_INLINE __m512 prepared(const ConvArgs& args, const float* scale_shift, int64_t at,
                               int64_t i) {
  const int64_t in = args.weight->in;
  const __mmask16 keep = lanes(in - i);
  __m512 v = load(args.x, args.dtype, at + i, keep);
  if (scale_shift)
    v = _mm512_fmadd_ps(v, _mm512_maskz_loadu_ps(keep, scale_shift + i),
                        _mm512_maskz_loadu_ps(keep, scale_shift + in + i));
  return args.silu ? silu(v) : v;
}

// Quantises a pixel into the tile.
void quantise_pixel(const Job& job, const float* scale_shift, int64_t at, std::byte* to) {
  const int64_t padded = job.panels.in_padded();
  auto* const values = reinterpret_cast<float*>(thread_scratch(2).at_least(padded * 4 + 64));
  __m512 most = _mm512_setzero_ps(), nan_sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < padded; i += 16) {
    const __m512 v = prepared(job.args, scale_shift, at, i);
    most = _mm512_max_ps(most, _mm512_abs_ps(v));
    nan_sum = _mm512_fmadd_ps(v, _mm512_setzero_ps(), nan_sum);  // NaN stays NaN
    _mm512_store_ps(values + i, v);
  }
  const float largest = _mm512_reduce_max_ps(most) + _mm512_reduce_add_ps(nan_sum);
  const WholeNumbers whole_of(largest);
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < padded; i += 16) {
    const __m512i whole = whole_of(_mm512_load_ps(values + i));
    sum = _mm512_add_epi32(sum, whole);
    _mm_mask_storeu_epi8(to + i, lanes(padded - i), _mm512_cvtepi32_epi8(whole));
  }
  const int64_t lift = int64_t{-kConvOffset} * _mm512_reduce_add_epi32(sum);
  const PixelNumbers numbers{largest / kInt8Largest, static_cast<int32_t>(lift)};
  std::memcpy(to + padded, &numbers, sizeof numbers);
}

// Copies a pixel into the tile: scale, shift, SiLU, rounding.
void copy_pixel(const Job& job, const float* scale_shift, int64_t at, std::byte* to) {
  if (job.int8()) return quantise_pixel(job, scale_shift, at, to);
  const int64_t padded = job.panels.in_padded();
  for (int64_t i = 0; i < padded; i += 16) {
    __m512 v = prepared(job.args, scale_shift, at, i);
    if (job.widens()) v = widen(to_bf16(v));
    store(to, job.tile, i, lanes(padded - i), v);
  }
}

// Copies the input of a tile with first pixel (line, column), zeros outside the image.
void copy_tile(const Job& job, int64_t row, int64_t line, int64_t column, std::byte* tile) {
  const ConvArgs& a = job.args;
  const int64_t in = a.weight->in, padded = job.panels.in_padded(), shift = job.halved ? 1 : 0;
  const int64_t pixel = job.pixel_bytes();
  const float* scale_shift = a.scale_shift ? a.scale_shift + row * 2 * in : nullptr;
  const bool plain =
      !scale_shift && !a.silu && !job.widens() && a.dtype == job.tile && padded == in && shift == 0;
  const int64_t x_begin = column * job.in_step - job.pad_left, count = job.in_columns();
  for (int64_t y = 0; y < job.in_lines(); ++y, tile += count * pixel) {
    const int64_t iy = line * job.in_step - job.pad_top + y;
    if (iy < 0 || iy >= a.height << shift) {
      std::memset(tile, 0, static_cast<size_t>(count * pixel));
      continue;
    }
    const int64_t first = std::clamp<int64_t>(-x_begin, 0, count);
    const int64_t last = std::clamp<int64_t>((a.width << shift) - x_begin, first, count);
    std::memset(tile, 0, static_cast<size_t>(first * pixel));
    std::memset(tile + last * pixel, 0, static_cast<size_t>((count - last) * pixel));
    const int64_t start = row * a.x_stride + (iy >> shift) * a.width * in;
    if (plain) {
      std::memcpy(
          tile + first * pixel,
          static_cast<const std::byte*>(a.x) + (start + (x_begin + first) * in) * size_of(a.dtype),
          static_cast<size_t>((last - first) * pixel));
      continue;
    }
    for (int64_t x = first; x < last; ++x)
      copy_pixel(job, scale_shift, start + ((x_begin + x) >> shift) * in, tile + x * pixel);
  }
}

// Widens words of two bf16 to lines of f32: even channel, then odd channel.
void widen_words(const std::byte* from, int64_t words, int64_t width, std::byte* to) {
  for (int64_t word = 0; word < words; ++word, to += 8 * width)
    for (int64_t c = 0; c < width; c += 16, from += 64) {
      const __m512i pairs = _mm512_load_si512(from);
      _mm512_store_si512(to + 4 * c, _mm512_slli_epi32(pairs, 16));
      _mm512_store_si512(to + 4 * (width + c), _mm512_and_si512(pairs, _mm512_set1_epi32(-65536)));
    }
}

// Computes sums [line][column][columns of the block] of a pass over a tile.
void multiply_tile(const Job& job, const Pass& pass, int64_t block, int64_t lines, int64_t columns,
                   const std::byte* tile, float* sums) {
  const ConvPanels& p = job.panels;
  const int64_t width = p.columns(block), bytes = size_of(job.args.weight->dtype);
  const int vectors = static_cast<int>(width / 16);
  const int64_t pixel = job.pixel_bytes(), step = pixel * job.in_step;
  const int64_t most = conv_pixels(vectors);
  const int64_t groups = ceil_div(columns, most);
  const int64_t chunk = job.int8() ? p.words : job.widens() ? kChunkWords / 2 : kChunkWords;
  std::byte* const wide = job.widens() ? thread_scratch(2).at_least(chunk * 8 * width) : nullptr;
  std::fill_n(sums, lines * columns * width, 0.0f);
  for (int64_t t = 0; t < p.taps; ++t)
    for (int64_t word = 0; word < p.words; word += chunk) {
      const int64_t words = std::min(chunk, p.words - word);
      const std::byte* filter = pass.panels + p.at(block, t, word, 0, 0) * bytes;
      if (job.widens()) widen_words(filter, words, width, wide);
      const auto [ty, tx] = pass.taps[static_cast<size_t>(t)];
      for (int64_t y = 0; y < lines; ++y) {
        const std::byte* line = tile + ((y * job.in_step + ty) * job.in_columns() + tx) * pixel +
                                word * p.per_word * size_of(job.tile);
        for (int64_t g = 0; g < groups; ++g) {
          const int64_t x = columns * g / groups, count = columns * (g + 1) / groups - x;
          conv_micro_for(job.tile, vectors, count)(
              line + x * step, step, job.widens() ? wide : filter, job.widens() ? 2 * words : words,
              sums + (y * columns + x) * width);
        }
      }
    }
}

// Adds bias and residual, rounds, and stores to the image.
void store_tile(const Job& job, const Pass& pass, int64_t block, int64_t row, int64_t line,
                int64_t column, int64_t lines, int64_t columns, const float* sums) {
  const ConvArgs& a = job.args;
  const int64_t out = a.weight->out, width = job.panels.columns(block);
  const float* bias = a.weight->bias.defined() ? a.weight->bias.data<float>() : nullptr;
  const float* scales = job.int8() ? a.weight->scales.data<float>() : nullptr;
  for (int64_t y = 0; y < lines; ++y)
    for (int64_t x = 0; x < columns; ++x, sums += width) {
      const int64_t oy = (line + y) * job.out_step + pass.first_line;
      const int64_t ox = (column + x) * job.out_step + pass.first_column;
      const int64_t at = ((row * a.out_height + oy) * a.out_width + ox) * out;
      for (int64_t v = 0, o = block * kConvColumns; v < width; v += 16, o += 16) {
        const __mmask16 keep = lanes(out - o);
        __m512 sum = _mm512_load_ps(sums + v);
        if (scales) sum = _mm512_mul_ps(sum, _mm512_maskz_loadu_ps(keep, scales + o));
        if (bias) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(keep, bias + o));
        if (a.residual) sum = _mm512_add_ps(sum, load(a.residual, a.y_dtype, at + o, keep));
        store(a.y, a.y_dtype, at + o, keep, sum);
      }
    }
}

TESSERA_AVX512_END

}  // namespace

void conv(const ConvArgs& args) {
  if (args.rows * args.out_height * args.out_width * args.weight->out == 0) return;
  const Job job = job_of(args);
  const int64_t across = ceil_div(job.width, job.columns), down = ceil_div(job.height, job.lines);
  const int64_t tiles = args.rows * down * across, blocks = job.panels.blocks();
  // With few tiles, also splits output channels over threads.
  const int64_t tasks = int64_t{8} * tensor::thread_count();
  const int64_t cuts = std::clamp<int64_t>(ceil_div(tasks, tiles), 1, blocks);
  const int64_t tile_bytes =
      ceil_div(job.in_lines() * job.in_columns() * job.pixel_bytes(), 64) * 64;
  tensor::parallel_tasks(tiles * cuts, [&](int64_t task) {
    const int64_t cut = task % cuts, at = task / cuts;
    const int64_t row = at / (down * across), line = at / across % down * job.lines,
                  column = at % across * job.columns;
    const int64_t lines = std::min(job.lines, job.height - line),
                  columns = std::min(job.columns, job.width - column);
    const int64_t sum_bytes = lines * columns * kConvColumns * int64_t{sizeof(float)};
    std::byte* const tile = thread_scratch(0).at_least(tile_bytes + sum_bytes);
    float* const sums = reinterpret_cast<float*>(tile + tile_bytes);
    copy_tile(job, row, line, column, tile);
    for (int64_t block = blocks * cut / cuts; block < blocks * (cut + 1) / cuts; ++block)
      for (const Pass& pass : job.passes) {
        multiply_tile(job, pass, block, lines, columns, tile, sums);
        store_tile(job, pass, block, row, line, column, lines, columns, sums);
      }
  });
}

}  // namespace tessera::kernels::avx512
#endif  // __x86_64__
