#include <vector>

#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/experts_sm90.h"
#include "kernels/cuda/grouping.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/product_f32.cuh"
#include "kernels/device_error.h"
#include "kernels/experts.h"

namespace tessera::kernels::cuda {
namespace {

constexpr int kPointersAtOnce = 64;
struct PointerChunk {
  ExpertPointers at[kPointersAtOnce];
};

// Data of both products of a layer.
struct Problem {
  const void* x;  // in form `form`
  int64_t x_stride, x_plane;
  Form form, inner_form;
  int64_t slots, pairs, hidden, inner, experts;
  void* inner_values;  // [pairs, inner] in sorted order
  void* rows;
  DType dtype;
  const ExpertPointers* bank;
  DeviceGroups groups;
  bool words, inner_words, gate_up_words, down_words;
};

// The pointers are passed as arguments, because a graph keeps arguments but not host memory.
__global__ void store_pointers_kernel(const __grid_constant__ PointerChunk chunk, int count,
                                      ExpertPointers* to) {
  if (static_cast<int>(threadIdx.x) < count) to[threadIdx.x] = chunk.at[threadIdx.x];
}

__global__ void __launch_bounds__(kSpreadThreads)
    zero_rows_kernel(const int32_t* ids, int64_t pairs, int64_t hidden, void* rows, DType dtype) {
  const float zero[1] = {0};
  for (int64_t i = first_piece() / kWarp; i < pairs; i += piece_step() / kWarp)
    if (ids[i] < 0)
      for (int64_t c = threadIdx.x % kWarp; c < hidden; c += kWarp)
        store<1>(rows, dtype, i * hidden + c, zero);
}

// Rows of x by pair (slots > 0), or rows in sorted order.
template <class T>
struct ExpertSource {
  using Row = const T*;
  const T* x;
  int64_t stride, plane;
  const int32_t* pair;
  int64_t first, count, slots;
  int repeats;
  bool words;

  __device__ Row row(int64_t m) const {
    if (m >= count) return nullptr;
    return x + (slots > 0 ? pair[first + m] / slots : first + m) * stride;
  }
  __device__ const T* at(Row row, int repeat, int64_t k) const {
    return row ? row + repeat * plane + k : nullptr;
  }
};

struct SwigluSink {
  static constexpr bool kPaired = true;
  void* to;
  Form form;
  int64_t first, count, n, total;
  const float* scales;

  __device__ void pair(int64_t m, int64_t column, const float (&gate)[2],
                       const float (&up)[2]) const {
    if (m >= count) return;
    for (int i = 0; i < 2; ++i) {
      const int64_t c = column + i;
      if (c >= n) return;
      const float g = scales ? gate[i] * scales[c] : gate[i];
      const float u = scales ? up[i] * scales[n + c] : up[i];
      put(to, form, total, (first + m) * n + c, silu(g) * u);
    }
  }
};

struct ScatterSink {
  static constexpr bool kPaired = false;
  void* rows;
  DType dtype;
  const int32_t* pairs;
  int64_t first, count, n;
  const float* scales;

  __device__ void pair(int64_t m, int64_t column, const float (&sums)[2]) const {
    if (m >= count || column >= n) return;
    const bool both = column + 1 < n;
    const float low = scales ? sums[0] * scales[column] : sums[0];
    const float high = scales && both ? sums[1] * scales[column + 1] : sums[1];
    store_two(rows, dtype, pairs[first + m] * n + column, low, high, both);
  }
};

struct Tile {
  int expert;
  int64_t first, count, row;  // range of the expert's rows in sorted order; first row of the tile
};
__device__ inline Tile tile_of(const Problem& p, int rows) {
  const int tile = static_cast<int>(blockIdx.x);
  if (tile >= p.groups.tile_begin[p.experts]) return {-1, 0, 0, 0};
  const int e = expert_of(p.groups, 0, static_cast<int>(p.experts), tile);
  const int64_t first = p.groups.begin[e];
  return {e, first, p.groups.begin[e + 1] - first, int64_t{tile - p.groups.tile_begin[e]} * rows};
}

template <class T>
__device__ inline ExpertSource<T> gate_up_source(const Problem& p, const Tile& t) {
  return {static_cast<const T*>(p.x),
          p.x_stride,
          p.x_plane,
          p.groups.pair,
          t.first,
          t.count,
          p.slots,
          p.form == Form::split ? 2 : 1,
          p.words};
}
template <class T>
__device__ inline ExpertSource<T> down_source(const Problem& p, const Tile& t) {
  return {static_cast<const T*>(p.inner_values),
          p.inner,
          p.pairs * p.inner,
          p.groups.pair,
          t.first,
          t.count,
          0,
          p.inner_form == Form::split ? 2 : 1,
          p.inner_words};
}
__device__ inline SwigluSink gate_up_sink(const Problem& p, const Tile& t) {
  return {p.inner_values,
          p.inner_form,
          t.first,
          t.count,
          p.inner,
          p.pairs * p.inner,
          p.bank[t.expert].gate_up_scales};
}
__device__ inline ScatterSink down_sink(const Problem& p, const Tile& t) {
  return {p.rows, p.dtype, p.groups.pair, t.first, t.count, p.hidden, p.bank[t.expert].down_scales};
}

template <int Rows, class Weight>
__global__ void __launch_bounds__(kProductThreads) gate_up_kernel(Problem p) {
  const Tile t = tile_of(p, Rows);
  if (t.expert < 0) return;
  using Weights = TileWeights<Weight, true>;
  const Weights w{static_cast<const Weight*>(p.bank[t.expert].gate_up), p.inner, p.hidden,
                  blockIdx.y * Weights::kColumns, p.gate_up_words};
  product_tile<Rows>(gate_up_source<BFloat16>(p, t), t.row, w, gate_up_sink(p, t));
}

template <int Rows, class Weight>
__global__ void __launch_bounds__(kProductThreads) down_kernel(Problem p) {
  const Tile t = tile_of(p, Rows);
  if (t.expert < 0) return;
  using Weights = TileWeights<Weight, false>;
  const Weights w{static_cast<const Weight*>(p.bank[t.expert].down), p.hidden, p.inner,
                  blockIdx.y * Weights::kColumns, p.down_words};
  product_tile<Rows>(down_source<BFloat16>(p, t), t.row, w, down_sink(p, t));
}

__global__ void __launch_bounds__(kPlainThreads) gate_up_f32_kernel(Problem p) {
  const Tile t = tile_of(p, kPlainRows);
  if (t.expert < 0) return;
  using Weights = PlainWeights<true>;
  const Weights w{static_cast<const float*>(p.bank[t.expert].gate_up), p.inner, p.hidden,
                  blockIdx.y * Weights::kColumns};
  product_tile_f32(gate_up_source<float>(p, t), t.row, w, gate_up_sink(p, t));
}

__global__ void __launch_bounds__(kPlainThreads) down_f32_kernel(Problem p) {
  const Tile t = tile_of(p, kPlainRows);
  if (t.expert < 0) return;
  using Weights = PlainWeights<false>;
  const Weights w{static_cast<const float*>(p.bank[t.expert].down), p.hidden, p.inner,
                  blockIdx.y * Weights::kColumns};
  product_tile_f32(down_source<float>(p, t), t.row, w, down_sink(p, t));
}

template <class Weights>
int column_tiles(int64_t n) {
  return static_cast<int>(ceil_div<int64_t>(n, Weights::kColumns));
}

template <int Rows, class Weight>
void multiply(const Problem& p, int64_t tiles) {
  Launch shape{.blocks = tiles,
               .rows = column_tiles<TileWeights<Weight, true>>(p.inner),
               .threads = kProductThreads,
               .shared = product_shared(Rows)};
  launch("experts", gate_up_kernel<Rows, Weight>, shape, p);
  shape.rows = column_tiles<TileWeights<Weight, false>>(p.hidden);
  launch("experts", down_kernel<Rows, Weight>, shape, p);
}

void multiply_f32(const Problem& p, int64_t tiles) {
  Launch shape{
      .blocks = tiles, .rows = column_tiles<PlainWeights<true>>(p.inner), .threads = kPlainThreads};
  launch("experts", gate_up_f32_kernel, shape, p);
  shape.rows = column_tiles<PlainWeights<false>>(p.hidden);
  launch("experts", down_f32_kernel, shape, p);
}

void store_pointers(const ExpertsArgs& args, ExpertPointers* to) {
  const auto scales = [](const PackedWeight& w) {
    return w.scales.defined() ? static_cast<const float*>(w.scales.raw()) : nullptr;
  };
  for (int64_t first = 0; first < args.experts; first += kPointersAtOnce) {
    PointerChunk chunk{};
    int count = 0;
    for (; count < kPointersAtOnce && first + count < args.experts; ++count) {
      const ExpertView& e = args.bank[first + count];
      chunk.at[count] = {e.up->data.raw(), e.down->data.raw(), scales(*e.up), scales(*e.down)};
    }
    launch("experts", store_pointers_kernel, Launch{.threads = kPointersAtOnce}, chunk, count,
           to + first);
  }
}

// Each thread computes V columns of a token; slots are added in order.
template <int V>
__global__ void __launch_bounds__(kSpreadThreads) combine_kernel(CombineArgs a) {
  const int64_t chunks = a.hidden / V;
  for (int64_t n = first_piece(); n < a.tokens * chunks; n += piece_step()) {
    const int64_t t = n / chunks, c = n % chunks * V;
    float sum[V] = {}, v[V];
    for (int64_t i = t * a.slots; i < (t + 1) * a.slots; ++i) {
      load<V>(a.rows, a.dtype, i * a.row_stride + c, v);
      const float weight = a.weights[i];
      TESSERA_UNROLL
      for (int j = 0; j < V; ++j) sum[j] += weight * v[j];
    }
    if (a.shared) {
      load<V>(a.shared, a.dtype, t * a.shared_stride + c, v);
      TESSERA_UNROLL
      for (int j = 0; j < V; ++j) sum[j] += v[j];
    }
    store<V>(a.y, a.dtype, t * a.hidden + c, sum);
  }
}

}  // namespace

void experts(const ExpertsArgs& args) {
  const int64_t pairs = args.tokens * args.slots;
  if (pairs == 0) return;
  if (args.experts > 2048) unsupported("experts", "experts", args.experts, "at most 2048");
  if (args.activation != Activation::swiglu || args.bank[0].up_bias || args.bank[0].down_bias)
    unsupported("experts", "layers with biases, or not of swiglu:", 1, "none");
  const DType weights = args.bank[0].up->dtype;
  Problem p{};
  p.form = weights == DType::f32       ? Form::f32
           : weights == DType::bf16    ? Form::bf16
           : args.dtype == DType::bf16 ? Form::bf16
                                       : Form::split;
  p.inner_form = weights == DType::i8 ? Form::split : p.form;
  p.slots = args.slots;
  p.pairs = pairs;
  p.hidden = args.hidden;
  p.inner = args.inner;
  p.experts = args.experts;
  p.rows = args.rows;
  p.dtype = args.dtype;
  const bool as_is = (p.form == Form::f32 && args.dtype == DType::f32) ||
                     (p.form == Form::bf16 && args.dtype == DType::bf16);
  const Scratch converted(as_is ? 0 : bytes_of(p.form, args.tokens * args.hidden));
  p.x = as_is ? args.x : converted.as<void>();
  p.x_stride = as_is ? args.x_stride : args.hidden;
  p.x_plane = args.tokens * args.hidden;
  if (!as_is)
    convert("experts", args.x, args.dtype, args.x_stride, args.tokens, args.hidden, p.form,
            converted.as<void>());
  const Scratch inner(bytes_of(p.inner_form, pairs * args.inner));
  p.inner_values = inner.as<void>();
  const int64_t bank_bytes = ceil_div<int64_t>(args.experts * sizeof(ExpertPointers), 128) * 128;
  const Scratch tables(bank_bytes + lay_out(p.groups, nullptr, pairs, args.experts));
  lay_out(p.groups, tables.as<std::byte>() + bank_bytes, pairs, args.experts);
  store_pointers(args, tables.as<ExpertPointers>());
  p.bank = tables.as<ExpertPointers>();

  const bool whole = args.hidden % 8 == 0, inner_whole = args.inner % 8 == 0;
  p.words = whole && in_words(p.x, DType::bf16, p.x_stride);
  p.inner_words = inner_whole;
  p.gate_up_words = whole;
  p.down_words = inner_whole;
  const bool boxes =
      p.form != Form::f32 && p.words && inner_whole && has_warpgroups() && serves_sm90(args);
  const int rows = boxes                    ? kExpertRows
                   : weights == DType::bf16 ? expert_tile_rows(pairs, args.experts)
                                            : 64;
  group_on_device(args.ids, pairs, args.experts, rows, p.groups);
  const int64_t tiles = most_tiles(pairs, args.experts, rows);
  // The result has room for rows sorted by expert, because only the last product writes the result.
  const bool there = args.dtype == DType::bf16;
  const Scratch apart(boxes && !there ? bytes_of(p.form, pairs * args.hidden) : 0);
  if (boxes)
    experts_sm90({&args, p.x, p.x_stride, p.x_plane, p.form == Form::split ? 2 : 1,
                  there ? args.rows : apart.as<void>(), p.inner_values, p.groups, p.bank});
  else if (weights == DType::f32)
    multiply_f32(p, tiles);
  else if (weights == DType::i8)
    multiply<64, int8_t>(p, tiles);
  else if (rows == 128)
    multiply<128, BFloat16>(p, tiles);
  else
    multiply<64, BFloat16>(p, tiles);
  launch("experts", zero_rows_kernel, spread(pairs * kWarp), args.ids, pairs, args.hidden,
         args.rows, args.dtype);
}

void combine(const CombineArgs& args) {
  const bool words = args.hidden % 8 == 0 && in_words(args.rows, args.dtype, args.row_stride) &&
                     in_words(args.y, args.dtype, 0) &&
                     (!args.shared || in_words(args.shared, args.dtype, args.shared_stride));
  launch("combine", words ? combine_kernel<8> : combine_kernel<1>,
         spread(args.tokens * args.hidden / (words ? 8 : 1)), args);
}

}  // namespace tessera::kernels::cuda
