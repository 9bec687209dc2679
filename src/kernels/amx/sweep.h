#pragma once

#if defined(__x86_64__)
#include <algorithm>

#include "kernels/avx512/product.h"
#include "kernels/avx512/vector.h"
#include "kernels/wide/stream.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::amx {

using avx512::BlockWriter;
using avx512::Range;
using avx512::RowLayout;
using avx512::Stream;
using wide::stream_pages;

constexpr int64_t kRows = 32;           ///< rows of a block: two tiles
constexpr int64_t kChunkSteps = 18;     ///< most steps in a block: 36 KB of W
constexpr int64_t kResidentSteps = 14;  ///< steps that stay in L1 for the next rows
constexpr int64_t kSumFloats = kRows * kPanelColumns;

/// A step of a block: 2 KB of x and 2 KB of W.
struct Operands {
  const std::byte *x, *w;
  Operands next() const { return {x + kRows * 64, w + kStepBytes}; }
};

/// Vector work interleaved with the products of the next block: adds the sums of a block to the
/// block's earlier chunks and, after the last chunk, hands rows to the writer. Two rows a step.
struct InterleavedWork {
  BlockWriter& writer;
  float* sums;
  Stream weights{};
  float* earlier = nullptr;
  int64_t row = kRows, row0 = 0, rows = 0, panel = 0;
  bool first = false, last = false;

  void step() {
    weights.step();
    if (row < kRows) two_rows();
  }
  void drain() {
    while (row < kRows) two_rows();
  }

 private:
  void two_rows() {
    float* const here = sums + row * kPanelColumns;
    float* const before = earlier + row * kPanelColumns;
    const int64_t count = std::min<int64_t>(2, rows - row0 - row);
    if (count > 0 && !(first && last)) {
      for (int64_t i = 0; i < 2 * kPanelColumns; ++i)
        here[i] = before[i] = first ? here[i] : before[i] + here[i];
    }
    if (count > 0 && last) writer.write(row0 + row, count, panel, here);
    row += 2;
  }
};

/// Multiplies tiles 4 to 7 and then loads `next` into them. Operands are loaded one step ahead,
/// also across the end of a block, because storing a tile must not be followed by a cold start.
template <class Tiles, bool keep_w, bool store>
inline void multiply_and_load(Operands next, float* sums) {
  constexpr int64_t kTile = kStepBytes / 2, kStride = kPanelColumns * 4;
  Tiles::template multiply<0, 4, 6>();
  Tiles::template multiply<1, 4, 7>();
  Tiles::template load_once<4>(next.x);
  if constexpr (store) Tiles::template store<0>(sums, kStride);
  Tiles::template multiply<2, 5, 6>();
  if constexpr (keep_w)
    Tiles::template load<6>(next.w);
  else
    Tiles::template load_once<6>(next.w);
  if constexpr (store) Tiles::template store<1>(sums + 16, kStride);
  Tiles::template multiply<3, 5, 7>();
  Tiles::template load_once<5>(next.x + kTile);
  if constexpr (keep_w)
    Tiles::template load<7>(next.w + kTile);
  else
    Tiles::template load_once<7>(next.w + kTile);
  if constexpr (store) {
    Tiles::template store<2>(sums + 16 * kPanelColumns, kStride);
    Tiles::template store<3>(sums + 16 * kPanelColumns + 16, kStride);
  }
}

/// sums[32][32] = x[32, steps] w[steps, 32], in the order of k. The first step is already in tiles
/// 4 to 7; afterwards these hold the step `next`. Sums start from zero, because loading them into
/// tiles would stall.
template <class Tiles>
inline void block(Operands at, int64_t steps, float* sums, Operands next, InterleavedWork& work) {
  Tiles::template zero<0>();
  Tiles::template zero<1>();
  Tiles::template zero<2>();
  Tiles::template zero<3>();
  for (int64_t s = 1, resident = 0; s < steps; ++s) {
    at = at.next();
    if ((resident += kResidentSteps) < steps) {
      multiply_and_load<Tiles, false, false>(at, nullptr);
    } else {
      resident -= steps;
      multiply_and_load<Tiles, true, false>(at, nullptr);
    }
    work.step();
  }
  work.step();
  work.drain();
  multiply_and_load<Tiles, true, true>(next, sums);
}

/// The cut of a sum into chunks depends only on the number of steps.
inline int64_t chunk_of(int64_t steps) {
  return avx512::ceil_div(steps, avx512::ceil_div(steps, kChunkSteps));
}

/// Rows stay in L2 and weights pass once. The bits of a row depend neither on other rows nor on the
/// panels. `bytes`: of all weights.
template <class Tiles>
void sweep_panels(const std::byte* x, const RowLayout& layout, const std::byte* weights,
                  int64_t bytes, Range panels, BlockWriter& writer) {
  const int64_t groups = layout.groups(), steps = layout.steps;
  if (panels.size() <= 0 || groups == 0 || steps == 0) return;
  const int64_t pages = stream_pages(layout.rows, groups, bytes), chunk = chunk_of(steps);
  // Offset by half a page from x and W: a load 4 KB behind a pending store would wait for the
  // store.
  float* const sums =
      reinterpret_cast<float*>(thread_scratch(2).at_least((groups + 1) * kSumFloats * 4 + 2048)) +
      512;
  auto operands = [&](int64_t g, int64_t p, int64_t s) -> Operands {
    return {x + (g * steps + s) * kRows * 64, weights + (p * steps + s) * kStepBytes};
  };
  InterleavedWork work{writer, sums};
  const typename Tiles::Scope scope;
  Tiles::fence();
  const Operands start = operands(0, panels.begin, 0);
  Tiles::template load_once<4>(start.x);
  Tiles::template load_once<5>(start.x + kStepBytes / 2);
  Tiles::template load<6>(start.w);
  Tiles::template load<7>(start.w + kStepBytes / 2);
  for (int64_t p = panels.begin; p < panels.end; ++p)
    for (int64_t s = 0; s < steps; s += chunk) {
      const int64_t here = std::min(chunk, steps - s);
      const bool last = s + chunk >= steps, end = last && p + 1 == panels.end;
      const Operands next = end ? start : last ? operands(0, p + 1, 0) : operands(0, p, s + chunk);
      work.weights =
          Stream(next.w, end ? 0 : std::min(chunk, last ? steps : steps - s - chunk) * kStepBytes,
                 groups * here, pages);
      for (int64_t g = 0; g < groups; ++g) {
        block<Tiles>(operands(g, p, s), here, sums, g + 1 < groups ? operands(g + 1, p, s) : next,
                     work);
        work.earlier = sums + (1 + g) * kSumFloats;
        work.row = 0;
        work.row0 = g * kRows;
        work.rows = layout.rows;
        work.panel = p;
        work.first = s == 0;
        work.last = last;
      }
    }
  work.drain();
}

template <class Tiles>
void sweep(const std::byte* x, const RowLayout& layout, const PackedWeight& w, Range panels,
           BlockWriter& writer) {
  sweep_panels<Tiles>(x, layout, w.data.data<std::byte>(), w.data.bytes(), panels, writer);
}

/// Engine::extend, for a chunk.
template <class Tiles>
void extend(const std::byte* x, const RowLayout& layout, tensor::DType, const std::byte* panel,
            float* sums, bool first) {
  struct Adding final : BlockWriter {
    float* sums;
    bool first;
    Adding(float* to, bool begins) : sums(to), first(begins) {}
    void write(int64_t row, int64_t rows, int64_t, const float* from) override {
      float* const to = sums + row * kPanelColumns;
      for (int64_t i = 0; i < rows * kPanelColumns; ++i) to[i] = first ? from[i] : to[i] + from[i];
    }
  } writer(sums, first);
  sweep_panels<Tiles>(x, layout, panel, layout.steps * kStepBytes, {0, 1}, writer);
}

}  // namespace tessera::kernels::amx
TESSERA_AVX512_END
#endif  // __x86_64__
