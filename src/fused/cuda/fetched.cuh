#pragma once

#include "fused/cuda/products.cuh"

// Products by warpgroups whose operands arrive by the copy engine: a thread beside the working ones
// requests boxes of weights, and of rows that lie side by side, up to four stages ahead. Own
// tokens, joined tiles and rows of another type lie anywhere: the working threads fetch them two
// stages ahead, as Hopper's engine would take a request for each row. A stage has two barriers:
// `full` ends a phase when its boxes have arrived, `empty` when all working warps have multiplied
// them.
namespace tessera::fused::cuda {

/// The stages of a block, in shared memory; they live as long as the block.
struct Stages {
  static constexpr int kCount = kernels::cuda::kGroupStages;
  static constexpr int kLeft = kernels::cuda::kGroupRows * 128;
  static constexpr int kRight = kernels::cuda::kProductColumns * 128;
  static constexpr int64_t kTiles = kernels::cuda::group_shared(kernels::cuda::kProductColumns);
  static constexpr int64_t kBytes = kTiles + 2 * 8 * kCount;

  unsigned char* tiles;
  uint64_t *full, *empty;

  __device__ Stages()
      : tiles(kernels::cuda::tiles_from(kernels::cuda::dynamic_shared())),
        full(reinterpret_cast<uint64_t*>(kernels::cuda::dynamic_shared() + kTiles)),
        empty(full + kCount) {}
  __device__ unsigned char* left(int stage) const { return tiles + stage * (kLeft + kRight); }
  __device__ unsigned char* right(int stage) const { return left(stage) + kLeft; }
};

/// Rows `first` and following of a map.
struct BoxedRows {
  const kernels::cuda::RowMap* map;  ///< null: the working threads fetch the rows
  int64_t first;
};

/// Products of bf16 or f16 weights by warpgroups, in the order of product_tile_sm90().
template <class Weight, bool Paired>
struct FetchedProducts : WarpProducts<Weight, Paired> {
  static constexpr bool kFast = true;
  static constexpr int kRows = kernels::cuda::kGroupRows;
  static constexpr int64_t kShared = Stages::kBytes;
  /// Threads beside the working ones: a warpgroup, so that it can give registers away. One fetches.
  static constexpr int kFetching = kernels::cuda::kGroup, kFetchRegisters = 56;
  static constexpr int kColumns = kernels::cuda::kProductColumns, kMapRows = kColumns / 2;
  static constexpr int kBoxBytes = kBoxRows * 128;
  using Up = kernels::cuda::TileWeights<Weight, Paired>;
  using Down = kernels::cuda::TileWeights<Weight, false>;

  /// Prepares the barriers; a block barrier follows.
  static __device__ void open() {
#if TESSERA_WARPGROUPS
    if (threadIdx.x != 0) return;
    const Stages stages;
    for (int s = 0; s < Stages::kCount; ++s) {
      kernels::cuda::barrier_init(stages.full + s, 1);
      kernels::cuda::barrier_init(stages.empty + s, kThreads / kernels::cuda::kWarp);
    }
    kernels::cuda::barriers_ready();
#endif
  }

  static __device__ void fetching_registers() {
#if TESSERA_WARPGROUPS
    kernels::cuda::give_registers<kFetchRegisters>();
#endif
  }
  static __device__ void working_registers() {
#if TESSERA_WARPGROUPS
    kernels::cuda::take_registers<kernels::cuda::computing_registers(kThreads / kFetching,
                                                                     kFetchRegisters)>();
#endif
  }

  /// The fetching thread's part of a task: requests the operands of multiply(), in its order.
  template <class Faults>
  static __device__ void fetch(const Seat& seat, const Task& task, int& used) {
#if TESSERA_WARPGROUPS
    if (own_thread() != kThreads) return;
    const Work& w = seat.w;
    const TileGroup& group = seat.coordinator().scheduler().group(task.slot);
    const ExpertMaps& maps = w.maps[seat.own().first_expert + task.expert];
    const bool whole = group.count > 1;
    if (!Faults::is(Fault::boxes_without_fence)) kernels::cuda::fence_rows();
    if (task.kind == TaskKind::up)
      fetch_panels<Faults, Up>(task, whole, w.up_parts, maps.up, w.inner, w.hidden, group.rows,
                               arrived_rows(seat, group), used);
    else if (task.kind == TaskKind::down)
      fetch_panels<Faults, Down>(task, whole, w.down_parts, maps.down, w.hidden, w.inner,
                                 group.rows,
                                 {&seat.own().inner_map, int64_t{task.slot} * w.slot_rows}, used);
#endif
  }

  template <class Faults, class Source, class Weights, class Sink>
  static __device__ void multiply(const Source& x, int64_t row, const Weights& w, const Sink& sink,
                                  int& used) {
#if TESSERA_WARPGROUPS
    float sums[kColumns / 8][4];
    add_products<Faults>(x, row, w.k, sums, used);
    const int lane = own_thread() % kernels::cuda::kWarp,
              warp = own_thread() / kernels::cuda::kWarp;
    TESSERA_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t m = row + warp * 16 + half * 8 + lane / 4;
      TESSERA_UNROLL
      for (int j = 0; j < (Sink::kPaired ? kColumns / 16 : kColumns / 8); ++j) {
        const int64_t column = w.first + j * 8 + lane % 4 * 2;
        if constexpr (Sink::kPaired)  // rows of up follow those of gate
          sink.pair(m, column, {sums[j][2 * half], sums[j][2 * half + 1]},
                    {sums[kColumns / 16 + j][2 * half], sums[kColumns / 16 + j][2 * half + 1]});
        else
          sink.pair(m, column, {sums[j][2 * half], sums[j][2 * half + 1]});
      }
    }
#else
    __trap();
#endif
  }

#if TESSERA_WARPGROUPS
 private:
  using Operand = kernels::cuda::OperandOf<Weight>;
  static constexpr int kDepth = kernels::cuda::kGroupDepth;

  /// The rows of a tile of another rank, alone in its slot, in the weights' type.
  static __device__ BoxedRows arrived_rows(const Seat& seat, const TileGroup& group) {
    const Layout& layout = seat.w.layout;
    Task tile = group.tiles[0];
    if (group.count > 1 || tile.peer == seat.rank || seat.w.dtype != seat.w.weights)
      return {nullptr, 0};
    tile.kind = TaskKind::up;
    const int64_t at =
        seat.dispatcher().offset(tile, Side::incoming, seat.coordinator().counts(tile));
    return {&seat.own().heap_map, (at - layout.count_region()) / layout.row_bytes};
  }
  /// The same in the view of the working threads.
  static __device__ bool boxed(const ArrivedRows<Operand>& x) {
    constexpr DType kType = std::is_same_v<Weight, Float16> ? DType::f16 : DType::bf16;
    return x.desk.count == 1 && !x.desk.members[0].pair && x.dtype == kType;
  }
  static constexpr __device__ bool boxed(const InnerRows<Operand>&) { return true; }

  template <class Faults, class Weights>
  static __device__ void fetch_panels(const Task& task, bool whole, int parts,
                                      const kernels::cuda::RowMap& map, int64_t n, int64_t k,
                                      int64_t rows, const BoxedRows& x, int& used) {
    constexpr bool kPaired = Weights::kColumns < kColumns;
    const Stages stages;
    kernels::cuda::acquire_map(map);
    const auto tile = [&](int64_t panel, int64_t row) {
      const int64_t left = rows - row < kRows ? rows - row : kRows;
      const int boxes = x.map ? static_cast<int>((left + kBoxRows - 1) / kBoxRows) : 0;
      const int64_t first = panel * Weights::kColumns;
      const int64_t second = first + (kPaired ? n : int64_t{kMapRows});
      for (int64_t at = 0; at < k; at += kDepth, ++used) {
        const int s = used % Stages::kCount;
        if (!Faults::is(Fault::stage_filled_early))
          kernels::cuda::barrier_wait(stages.empty + s, used / Stages::kCount % 2 ^ 1);
        kernels::cuda::barrier_expect(stages.full + s, Stages::kRight + boxes * kBoxBytes);
        const auto channel = static_cast<int>(at);
        kernels::cuda::load_box(stages.right(s), map, stages.full + s, channel, 0, first);
        kernels::cuda::load_box(stages.right(s) + Stages::kRight / 2, map, stages.full + s, channel,
                                0, second);
        TESSERA_KEEP_ROLLED
        for (int box = 0; box < boxes; ++box)
          kernels::cuda::load_written_box(stages.left(s) + box * kBoxBytes, *x.map, stages.full + s,
                                          channel, x.first + row + box * kBoxRows);
      }
    };
    each_tile<FetchedProducts, Weights>(task, whole, parts, n, rows, tile);
  }

  // sums = products over k of kRows rows from `first_row` on.
  template <class Faults, class Source>
  static __device__ void add_products(const Source& source, int64_t first_row, int64_t k_size,
                                      float (&sums)[kColumns / 8][4], int& used) {
    using kernels::cuda::barrier_wait, kernels::cuda::cp_async_commit, kernels::cuda::cp_async_wait,
        kernels::cuda::fence_shared, kernels::cuda::leave, kernels::cuda::products_begin,
        kernels::cuda::products_commit, kernels::cuda::products_leave, kernels::cuda::products_wait,
        kernels::cuda::stage_left, kernels::cuda::tile_descriptor;
    constexpr int kChunks = kDepth / 8, kLines = kThreads / kChunks, kMine = kRows / kLines;
    const Stages stages;
    const bool boxes = boxed(source);
    const int thread = own_thread(), chunk = thread % kChunks, line = thread / kChunks;
    typename Source::Row rows[kMine];
    TESSERA_UNROLL
    for (int i = 0; i < kMine; ++i) rows[i] = source.row(first_row + line + i * kLines);
    const int steps = static_cast<int>((k_size + kDepth - 1) / kDepth);
    // Lines are kLines apart, a multiple of eight, so a thread's words have the same swizzle.
    const int at = line * 128 + (chunk ^ line % 8) * 16;
    const auto fetch_rows = [&](int step) {
      if (step < steps) {
        unsigned char* const to = stages.left((used + step) % Stages::kCount) + at;
        TESSERA_UNROLL
        for (int i = 0; i < kMine; ++i)
          stage_left(reinterpret_cast<Operand*>(to + i * kLines * 128), source, rows[i], 0,
                     int64_t{step} * kDepth + chunk * 8, k_size);
      }
      cp_async_commit();
    };
    TESSERA_KEEP_ROLLED
    for (int step = 0; !boxes && step < Stages::kCount - 2; ++step) fetch_rows(step);
    for (int step = 0; step < steps; ++step) {
      if (!boxes) {
        cp_async_wait<Stages::kCount - 3>();
        fence_shared();
      }
      products_leave<1>();
      if (step > 1) leave(stages.empty + (used + step - 2) % Stages::kCount);
      if (!boxes) {
        meet();  // rows of this stage have arrived, and those of the stage before the last are free
        fetch_rows(step + Stages::kCount - 2);
      }
      const int s = (used + step) % Stages::kCount;
      if (!Faults::is(Fault::stage_read_early))
        barrier_wait(stages.full + s, (used + step) / Stages::kCount % 2);
      products_begin();
      TESSERA_UNROLL
      for (int k = 0; k < kDepth / 16; ++k)
        multiply_step(sums,
                      tile_descriptor(
                          stages.left(s) + thread / kernels::cuda::kGroup * 64 * 128 + k * 32, 16),
                      tile_descriptor(stages.right(s) + k * 32, 16), step + k > 0);
      products_commit();
    }
    products_wait<0>(sums);
    for (int step = steps > 1 ? steps - 2 : 0; step < steps; ++step)
      leave(stages.empty + (used + step) % Stages::kCount);
    used += steps;
  }
  static __device__ void multiply_step(float (&sums)[kColumns / 8][4], uint64_t left,
                                       uint64_t right, bool add) {
    if constexpr (std::is_same_v<Weight, Float16>)
      kernels::cuda::multiply_shared_f16(sums, left, right, add);
    else
      kernels::cuda::multiply_shared<kColumns>(sums, left, right, add);
  }
#endif
};

}  // namespace tessera::fused::cuda
