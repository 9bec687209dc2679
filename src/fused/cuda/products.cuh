#pragma once

#include "fused/cuda/moves.cuh"
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/matmul_finish.cuh"
#include "kernels/cuda/product.cuh"
#include "kernels/cuda/product_f32.cuh"
#include "kernels/cuda/product_sm90.cuh"

// The products of a slot's tiles, by the tiles of kernels/cuda: rows are read where they arrived,
// and results are written where they leave.
namespace tessera::fused::cuda {

using kernels::cuda::Form;
using tensor::BFloat16, tensor::Float16;

/// Rows of a tile of the slot.
struct Member {
  const std::byte* x;
  std::byte* y;
  const int32_t* pair;  ///< for own tokens; null: rows in order
  int64_t rows;
};

/// The members of a slot, in shared memory.
struct Desk {
  Task task;
  int32_t state;
  int32_t count;
  int64_t rows;
  Member members[TileGroup::kMost];

  /// The member with row m; m becomes its row there.
  __device__ const Member& find(int64_t& m) const {
    int i = 0;
    for (; i < count - 1 && m >= members[i].rows; ++i) m -= members[i].rows;
    return members[i];
  }
};

__device__ inline void lay_out_members(const Seat& seat, const Task& task, Desk& desk) {
  const TileGroup& group = seat.coordinator().scheduler().group(task.slot);
  if (own_thread() == 0) {
    desk.count = group.count;
    desk.rows = group.rows;
  }
  if (own_thread() < group.count) {
    const Dispatcher dispatcher = seat.dispatcher();
    const RankWork& r = seat.own();
    Task tile = group.tiles[own_thread()];
    Member& member = desk.members[own_thread()];
    member.rows = tile.rows;
    if (tile.peer == seat.rank) {
      member = {static_cast<const std::byte*>(r.x), static_cast<std::byte*>(r.rows),
                seat.pairs(tile), tile.rows};
    } else {
      const int64_t* const counts = seat.coordinator().counts(tile);
      tile.kind = TaskKind::up;
      member.x = r.heap + dispatcher.offset(tile, Side::incoming, counts);
      tile.kind = TaskKind::give_back;
      member.y = r.heap + dispatcher.offset(tile, Side::outgoing, counts);
      member.pair = nullptr;
    }
  }
  meet();
}

/// Rows of x in a form other than theirs; `Form` of kernels/cuda/convert.cuh.
template <class T>
struct ArrivedRows {
  using Row = const std::byte*;
  const T* x;  ///< any address
  const Desk& desk;
  int64_t row_bytes, x_stride, slots;  ///< x_stride: bytes of own tokens
  DType dtype;
  int repeats;
  bool words;

  __device__ Row row(int64_t m) const {
    if (m >= desk.rows) return nullptr;
    const Member& member = desk.find(m);
    return member.x + (member.pair ? member.pair[m] / slots * x_stride : m * row_bytes);
  }
  __device__ const T* at(Row row, int, int64_t k) const {
    return row ? reinterpret_cast<const T*>(row) + k : nullptr;
  }
};

/// Elements k .. k + 8 of an arrived row; other types than bf16 are rounded, and the rounding
/// errors are the second plane.
__device__ inline void stage_left(BFloat16* to, const ArrivedRows<BFloat16>& source,
                                  const std::byte* const& row, int repeat, int64_t k, int64_t end) {
  const bool inside = row && k < end;
  if (source.dtype == DType::bf16) {
    kernels::cuda::cp_async_16(to, inside ? source.at(row, 0, k) : source.x, inside);
    return;
  }
  float v[8] = {};
  if (inside) kernels::cuda::load<8>(row, source.dtype, k, v);
  if (repeat > 0) TESSERA_UNROLL
  for (int j = 0; j < 8; ++j) v[j] -= kernels::cuda::widen(kernels::cuda::narrow<BFloat16>(v[j]));
  kernels::cuda::store_shared(to, kernels::cuda::narrow_word<BFloat16>(v));
}

/// Inner activations of a slot, in planes.
template <class T>
struct InnerRows {
  using Row = const T*;
  const T* x;
  int64_t stride, plane, rows;
  int repeats;
  bool words;

  __device__ Row row(int64_t m) const { return m < rows ? x + m * stride : nullptr; }
  __device__ const T* at(Row row, int repeat, int64_t k) const {
    return row ? row + repeat * plane + k : nullptr;
  }
};

/// An activation as numbers, so that the code of an epilogue serves all: x / (1 + 2^-e) with e = a
/// x (1 + b x^2) has the bits of activate() for silu, quick_gelu and gelu_tanh.
struct Curve {
  float a, b;
  Activation kind;

  __device__ explicit Curve(Activation paired) : a(0), b(0), kind(kernels::gate_function(paired)) {
    constexpr float kLog2E = 1.4426950408889634f;
    if (kind == Activation::silu) a = kLog2E;
    if (kind == Activation::quick_gelu) a = 1.702f * kLog2E;
    if (kind != Activation::gelu_tanh) return;
    a = 2 * kLog2E * 0.7978845608028654f;
    b = 0.044715f;
  }
  __device__ float operator()(float x) const {
    if (a != 0) return kernels::cuda::gated_by_itself(x, a * x * fmaf(b * x, x, 1));
    if (kind == Activation::gelu_erf) return kernels::cuda::fast_gelu_erf(x);
    return kind == Activation::relu && x < 0 ? 0 : x;
  }
};

/// `Fast`: a SwiGLU as in the epilogues of tiles by warpgroups.
template <bool Fast>
__device__ inline float gated(const Curve& curve, float x, float up) {
  if (!Fast && curve.kind == Activation::silu) return kernels::cuda::silu(x) * up;
  return curve(x) * up;
}

template <class Element, bool Paired, bool Fast>
struct InnerSink {
  static constexpr bool kPaired = Paired;
  void* to;
  Form form;
  Curve curve;
  int64_t rows, n, plane;
  const float *scales, *bias;

  __device__ void put_one(int64_t m, int64_t c, float value) const {
    if constexpr (std::is_same_v<Element, Float16>)
      static_cast<Float16*>(to)[m * n + c] = kernels::cuda::narrow<Float16>(value);
    else
      kernels::cuda::put(to, form, plane, m * n + c, value);
  }
  __device__ void pair(int64_t m, int64_t column, const float (&gate)[2],
                       const float (&up)[2]) const {
    if (m >= rows) return;
    for (int i = 0; i < 2; ++i) {
      const int64_t c = column + i;
      if (c >= n) return;
      put_one(m, c,
              gated<Fast>(curve, scales ? gate[i] * scales[c] : gate[i],
                          scales ? up[i] * scales[n + c] : up[i]));
    }
  }
  __device__ void pair(int64_t m, int64_t column, const float (&sums)[2]) const {
    if (m >= rows) return;
    for (int i = 0; i < 2; ++i) {
      const int64_t c = column + i;
      if (c >= n) return;
      const float sum = scales ? sums[i] * scales[c] : sums[i];
      put_one(m, c, curve(bias ? sum + bias[c] : sum));
    }
  }
};

struct ResultSink {
  static constexpr bool kPaired = false;
  const Desk& desk;
  DType dtype;
  int64_t n;
  const float *scales, *bias;

  __device__ float finished(float sum, int64_t c) const {
    const float value = scales ? sum * scales[c] : sum;
    return bias ? value + bias[c] : value;
  }
  __device__ void pair(int64_t m, int64_t column, const float (&sums)[2]) const {
    if (m >= desk.rows || column >= n) return;
    const Member& member = desk.find(m);
    const bool both = column + 1 < n;
    const int64_t row = member.pair ? member.pair[m] : m;
    kernels::cuda::store_two(member.y, dtype, row * n + column, finished(sums[0], column),
                             both ? finished(sums[1], column + 1) : 0, both);
  }
};

/// No warp beside the working threads: they fetch what they multiply.
struct NothingFetched {
  static constexpr int kFetching = 0, kMapRows = 0;
  static __device__ void working_registers() {}
};

/// Products of bf16, f16 or i8 weights on any tensor cores.
template <class Weight, bool Paired>
struct WarpProducts : NothingFetched {
  using Element = kernels::cuda::OperandOf<Weight>;
  using Up = kernels::cuda::TileWeights<Weight, Paired>;
  using Down = kernels::cuda::TileWeights<Weight, false>;
  static constexpr bool kPaired = Paired, kFast = false;
  static constexpr int kRows = 64;
  static constexpr int64_t kShared = kernels::cuda::product_shared(kRows);
  template <class Faults, class Source, class Weights, class Sink>
  static __device__ void multiply(const Source& x, int64_t row, const Weights& w, const Sink& sink,
                                  int&) {
    kernels::cuda::product_tile<kRows>(x, row, w, sink);
  }
  template <class Weights>
  static __device__ Weights weights(const void* data, int64_t n, int64_t k, int64_t first) {
    return {static_cast<const Weight*>(data), n, k, first, k % 8 == 0};
  }
};

/// The same of i8 weights by warpgroups: all threads read and widen them.
template <class Weight, bool Paired>
struct GroupProducts : WarpProducts<Weight, Paired> {
  static constexpr bool kFast = true;
  static constexpr int kRows = kernels::cuda::kGroupRows;
  static constexpr int64_t kShared = kernels::cuda::group_shared(kernels::cuda::kProductColumns);
  template <class Faults, class Source, class Weights, class Sink>
  static __device__ void multiply(const Source& x, int64_t row, const Weights& w, const Sink& sink,
                                  int&) {
#if TESSERA_WARPGROUPS
    kernels::cuda::product_tile_sm90<kernels::cuda::kProductColumns>(x, row, w, sink);
#else
    __trap();
#endif
  }
};

/// Products of f32 weights, with f32 rows.
template <bool Paired>
struct PlainProducts : NothingFetched {
  using Element = float;
  using Up = kernels::cuda::PlainWeights<Paired>;
  using Down = kernels::cuda::PlainWeights<false>;
  static constexpr bool kPaired = Paired, kFast = false;
  static constexpr int kRows = kernels::cuda::kPlainRows;
  static constexpr int64_t kShared = 0;
  template <class Faults, class Source, class Weights, class Sink>
  static __device__ void multiply(const Source& x, int64_t row, const Weights& w, const Sink& sink,
                                  int&) {
    kernels::cuda::product_tile_f32(x, row, w, sink);
  }
  template <class Weights>
  static __device__ Weights weights(const void* data, int64_t n, int64_t k, int64_t first) {
    return {static_cast<const float*>(data), n, k, first};
  }
};

/// Planes of inner activations: with i8 weights they keep their rounding errors.
constexpr Form inner_form(DType weights) {
  return weights == DType::f32 ? Form::f32 : weights == DType::i8 ? Form::split : Form::bf16;
}
/// Planes of rows, as in kernels/cuda/experts.cu.
constexpr int planes_of(DType weights, DType rows) {
  return weights == DType::i8 && rows != DType::bf16 ? 2 : 1;
}

/// Tiles of a product's task: calls f(panel, row) for its panels, for all rows of the slot.
template <class Products, class Weights, class F>
__device__ inline void each_tile(const Task& task, bool whole, int parts, int64_t n, int64_t rows,
                                 const F& f) {
  const int64_t panels = (n + Weights::kColumns - 1) / Weights::kColumns;
  const int64_t begin = whole ? 0 : panels * task.part / parts;
  const int64_t end = whole ? panels : panels * (task.part + 1) / parts;
  for (int64_t panel = begin; panel < end; ++panel)
    for (int64_t row = 0; row < rows; row += Products::kRows) f(panel, row);
}

template <class Products, class Faults, class Weights, class Source, class Sink>
__device__ inline void multiply_panels(const Task& task, bool whole, int parts, const void* data,
                                       int64_t n, int64_t k, int64_t rows, const Source& source,
                                       const Sink& sink, int& used) {
  each_tile<Products, Weights>(task, whole, parts, n, rows, [&](int64_t panel, int64_t row) {
    meet();  // shared memory is free
    Products::template multiply<Faults>(
        source, row, Products::template weights<Weights>(data, n, k, panel * Weights::kColumns),
        sink, used);
  });
}

/// `used`: stages of fetched weights that the block has used.
template <class Products, class Faults>
__device__ inline void multiply(const Seat& seat, const Task& task, Desk& desk, int& used) {
  using Element = typename Products::Element;
  const Work& w = seat.w;
  const RankWork& r = seat.own();
  lay_out_members(seat, task, desk);
  const ExpertData& expert = w.bank[r.first_expert + task.expert];
  const DType weights = w.weights;
  auto* const inner = reinterpret_cast<Element*>(r.inner + task.slot * w.slot_bytes);
  const int64_t plane = w.slot_rows * w.inner;
  const bool whole = desk.count > 1;
  if (task.kind == TaskKind::up) {
    const ArrivedRows<Element> rows{static_cast<const Element*>(r.x), desk,    w.layout.row_bytes,
                                    r.x_stride * size_of(w.dtype),    w.slots, w.dtype,
                                    planes_of(weights, w.dtype),      true};
    multiply_panels<Products, Faults, typename Products::Up>(
        task, whole, w.up_parts, expert.up, w.inner, w.hidden, desk.rows, rows,
        InnerSink<Element, Products::kPaired, Products::kFast>{
            inner, inner_form(weights), Curve(w.activation), desk.rows, w.inner, plane,
            expert.up_scales, expert.up_bias},
        used);
  } else {
    const InnerRows<Element> rows{
        inner, w.inner, plane, desk.rows, weights == DType::i8 ? 2 : 1, w.inner % 8 == 0};
    multiply_panels<Products, Faults, typename Products::Down>(
        task, whole, w.down_parts, expert.down, w.hidden, w.inner, desk.rows, rows,
        ResultSink{desk, w.dtype, w.hidden, expert.down_scales, expert.down_bias}, used);
  }
}

}  // namespace tessera::fused::cuda
