#pragma once

#include "fused/cuda/fetched.cuh"
#include "fused/cuda/gate.cuh"

// The blocks of a rank: a scheduler, whose first warp gives out tasks while others watch for words
// of other ranks, and processors.
namespace tessera::fused::cuda {

/// Words of other blocks, in shared memory: bells are read by the scheduling warp, counts and flags
/// by watching warps.
struct Snapshot {
  static constexpr int kWords = 8;  ///< words of a lane behind one fence
  const Doorbell* bells;
  const std::byte* heap;
  uint64_t* seen;  ///< then a word that ends the watch
  int64_t counts_at, flags_at;
  int bell_words, count_words, all_words;

  /// Bytes of shared memory.
  static constexpr int64_t bytes(const Layout& layout, int processors) {
    return 8 * (processors + layout.ranks * layout.experts + layout.flags() + 1);
  }
  __device__ Snapshot(const Seat& seat, const Doorbell* bells_, uint64_t* seen_)
      : bells(bells_),
        heap(seat.own().heap),
        seen(seen_),
        counts_at(seat.w.layout.count_offset(seat.w.epoch, 0, 0)),
        flags_at(seat.w.layout.flag_offset(0, Round::dispatch, 0)),
        bell_words(seat.w.processors),
        count_words(seat.w.layout.ranks * seat.w.layout.experts),
        all_words(bell_words + count_words + static_cast<int>(seat.w.layout.flags())) {}

  __device__ const uint64_t* word(int i) const {
    if (i < bell_words) return &bells[i].word;
    const auto* const from =
        heap + (i < bell_words + count_words ? counts_at + 8 * (i - bell_words)
                                             : flags_at + 8 * (i - bell_words - count_words));
    return reinterpret_cast<const uint64_t*>(from);
  }
  __device__ int number(const uint64_t* word) const {
    const int64_t at = reinterpret_cast<const std::byte*>(word) - heap;
    if (at >= flags_at && at < flags_at + 8 * (all_words - bell_words - count_words))
      return bell_words + count_words + static_cast<int>((at - flags_at) / 8);
    if (at >= counts_at && at < counts_at + 8 * count_words)
      return bell_words + static_cast<int>((at - counts_at) / 8);
    return static_cast<int>(reinterpret_cast<const Doorbell*>(word) - bells);
  }
  /// By all lanes of the scheduling warp, before the watch.
  __device__ void begin() const {
    for (int i = own_thread(); i < all_words; i += kernels::cuda::kWarp)
      seen[i] = kernels::cuda::load_word(word(i));
    if (own_thread() == 0) seen[all_words] = 0;
    kernels::cuda::acquire_words();
  }
  /// By all lanes of the scheduling warp.
  __device__ void read_bells() const {
    __syncwarp();
    for (int i = own_thread(); i < bell_words; i += kernels::cuda::kWarp)
      seen[i] = kernels::cuda::load_word(word(i));
    kernels::cuda::acquire_words();
    __syncwarp();
  }
  /// Watching warps: as many as have a few words for each lane.
  __device__ int watchers() const {
    constexpr int kMost = kThreads / kernels::cuda::kWarp - 1;
    const int wish = (all_words - bell_words) / (kWords * kernels::cuda::kWarp) + 1;
    return wish < kMost ? wish : kMost;
  }
  /// By all lanes of a watching warp, 0 <= warp < watchers(), until end_watch(). A word is posted
  /// behind the fence that makes its rows visible.
  __device__ void watch(int warp) const {
    const int lanes = watchers() * kernels::cuda::kWarp;
    const int lane = own_thread() % kernels::cuda::kWarp;
    const auto over = [&] {  // alike in all lanes
      const uint64_t word = lane == 0 ? kernels::cuda::posted_word(seen + all_words) : 0;
      return __shfl_sync(kernels::cuda::kAllLanes, static_cast<int>(word), 0) != 0;
    };
    while (!over()) {
      for (int first = bell_words + warp * kernels::cuda::kWarp + lane; first < all_words;
           first += kWords * lanes) {
        uint64_t values[kWords];
        TESSERA_UNROLL
        for (int i = 0; i < kWords; ++i)
          if (first + i * lanes < all_words)
            values[i] = kernels::cuda::load_word(word(first + i * lanes));
        kernels::cuda::acquire_words();
        TESSERA_UNROLL
        for (int i = 0; i < kWords; ++i)
          if (first + i * lanes < all_words)
            kernels::cuda::post_word(seen + first + i * lanes, values[i]);
      }
      if (lane == 0) kernels::cuda::pause();
      __syncwarp();
    }
  }
  __device__ void end_watch() const { kernels::cuda::post_word(seen + all_words, 1); }
};

/// A snapshot for the coordinator.
template <class Faults>
struct SeenWords {
  const Snapshot& from;
  uint64_t epoch;

  __device__ uint64_t load(const uint64_t* word) const {
    const int i = from.number(word);
    if (i < from.bell_words) return from.seen[i];
    const uint64_t value = kernels::cuda::posted_word(from.seen + i);
    if (value == 0) return value;
    const bool count = i < from.bell_words + from.count_words;
    if (Faults::is(count ? Fault::any_epoch_of_counts : Fault::any_epoch_of_flags))
      return epoch << 32 | (value & 0xffffffff);
    return value;
  }
  __device__ void store(uint64_t* word, uint64_t value) const {
    from.seen[from.number(word)] = value;
    kernels::cuda::store_release(word, value);
  }
};

__device__ inline void end_part(const Seat& seat, Ending::Kind kind, const Arrival& missing) {
  Ending& ending = *seat.own().ending;
  const Coordinator& c = seat.coordinator();
  if (ending.kind == Ending::Kind::unknown) {
    ending.missing = missing;
    ending.kind = kind;
  }
  ending.epoch = seat.w.epoch;
  ending.finished = c.scheduler().finished();
  ending.bound = c.scheduler().bound();
}

// Polls; false: the part of the rank is over.
template <class Faults>
__device__ inline bool schedule_once(const Seat& seat, SeenWords<Faults>& words, int64_t& idle) {
  Coordinator& c = *seat.own().coordinator;
  const auto over = [&](Ending::Kind kind, const Arrival& missing) {
    end_part(seat, kind, missing);
    kernels::cuda::store_release(seat.own().stop, seat.w.epoch);
    return false;
  };
  if (seat.own().ending->kind != Ending::Kind::unknown) return over(Ending::Kind::refused, {});
  if (c.poll(words)) {
    idle = 0;
  } else {
    ++idle;
    kernels::cuda::pause();
  }
  if (c.refused().kind != Arrival::Kind::nothing) return over(Ending::Kind::refused, c.refused());
  if (c.done()) return over(Ending::Kind::done, {});
  if (idle > seat.w.patience) return over(Ending::Kind::waited, c.missing());
  return true;
}

/// The scheduler's block: the first warp reads bells, and its first lane gives out tasks.
template <class Faults>
__device__ inline void schedule(const Seat& seat, unsigned char* shared) {
  const Snapshot snapshot(seat, seat.coordinator().scheduler().bell(0),
                          reinterpret_cast<uint64_t*>(shared));
  const int warp = own_thread() / kernels::cuda::kWarp;
  if (warp == 0) snapshot.begin();
  __syncthreads();
  if (warp > snapshot.watchers()) return;
  if (warp > 0) return snapshot.watch(warp - 1);
  SeenWords<Faults> words{snapshot, seat.w.epoch};
  if (own_thread() == 0) seat.own().coordinator->begin(seat.blocks(), false, words);
  int64_t idle = 0;
  for (bool more = true; more;) {
    snapshot.read_bells();
    if (own_thread() == 0) more = schedule_once<Faults>(seat, words, idle);
    more = __shfl_sync(kernels::cuda::kAllLanes, static_cast<int>(more), 0) != 0;
  }
  if (own_thread() == 0) snapshot.end_watch();
}

template <class Products, class Faults>
__device__ inline void perform(const Seat& seat, const Task& task, Desk& desk, int& used) {
  switch (task.kind) {
    case TaskKind::gate: return route<Faults>(seat);
    case TaskKind::dispatch: return dispatch<Faults>(seat, task);
    case TaskKind::up:
    case TaskKind::down: return multiply<Products, Faults>(seat, task, desk, used);
    case TaskKind::give_back: return give_back<Faults>(seat, task);
    case TaskKind::collect: return collect(seat, task);
    case TaskKind::combine: return combine(seat, task);
    case TaskKind::none:
    case TaskKind::shared: return;
  }
}

struct BellWords {
  __device__ static uint64_t load(const uint64_t* word) {
    return kernels::cuda::load_acquire(word);
  }
  __device__ static void store(uint64_t* word, uint64_t value) {
    kernels::cuda::store_release(word, value);
  }
};

// Waits for a task; false: there are no more.
template <class Faults>
__device__ inline bool called(const Seat& seat, int number, Task& task, BellWords& words) {
  constexpr int64_t kTurns = 4;  // to one of a scheduler
  const Processor one = seat.coordinator().processor(number);
  if (Faults::is(Fault::task_read_early)) task = seat.coordinator().scheduler().bell(number)->task;
  for (int64_t turn = 0; turn < kTurns * seat.w.patience; ++turn) {
    if (kernels::cuda::load_acquire(seat.own().stop) == seat.w.epoch) return false;
    if (Faults::is(Fault::task_read_early) ? one.called(words) : one.take(task, words)) return true;
    kernels::cuda::pause();
  }
  return false;
}

/// A barrier of all threads of a processor.
template <class Products>
__device__ inline void meet_all() {
  kernels::cuda::wait_for_threads(2, kThreads + Products::kFetching);
}

/// The threads of a processor that fetch for the working ones.
template <class Products, class Faults>
__device__ inline void fetch(const Seat& seat, const Desk& desk) {
  Products::fetching_registers();
  int used = 0;
  for (;;) {
    meet_all<Products>();
    if (desk.state == 0) return;
    Products::template fetch<Faults>(seat, desk.task, used);
    meet_all<Products>();
  }
}

/// The working threads of a processor share a task.
template <class Products, class Faults>
__device__ inline void work_on(const Seat& seat, int number, Desk& desk) {
  Products::working_registers();
  const Processor one = seat.coordinator().processor(number);
  BellWords words;
  const auto early = [&](const Task& task) {
    return Faults::is(Fault::bell_before_work) ||
           (Faults::is(Fault::place_freed_unread) && task.kind == TaskKind::collect);
  };
  int used = 0;
  for (;;) {
    if (own_thread() == 0) desk.state = called<Faults>(seat, number, desk.task, words) ? 1 : 0;
    meet_all<Products>();
    if (desk.state == 0) return;
    const Task task = desk.task;
    if (own_thread() == 0 && early(task)) one.done(words);
    perform<Products, Faults>(seat, task, desk, used);
    meet_all<Products>();
    if (own_thread() == 0 && !early(task) && !Faults::is(Fault::bell_not_cleared)) one.done(words);
  }
}

/// A processor's block.
template <class Products, class Faults>
__device__ inline void process(const Seat& seat, int number, Desk& desk) {
  if constexpr (Products::kFetching == 0) {
    work_on<Products, Faults>(seat, number, desk);
  } else {
    Products::open();
    __syncthreads();
    if (own_thread() < kThreads)
      work_on<Products, Faults>(seat, number, desk);
    else
      fetch<Products, Faults>(seat, desk);
  }
}

/// A layer of the ranks of a launch: blocks of a rank are neighbours, and the first block
/// schedules.
template <class Products, class Faults>
__global__ void __launch_bounds__(kThreads + Products::kFetching, 1)
    moe_layer_kernel(const __grid_constant__ Work work) {
  const int blocks = 1 + work.processors, at = static_cast<int>(blockIdx.x);
  const Seat seat{work, work.first_rank + at / blocks};
  unsigned char* const shared = kernels::cuda::dynamic_shared();
  if (at % blocks == 0)
    schedule<Faults>(seat, shared);
  else
    process<Products, Faults>(seat, at % blocks - 1,
                              *reinterpret_cast<Desk*>(shared + Products::kShared));
}

}  // namespace tessera::fused::cuda
