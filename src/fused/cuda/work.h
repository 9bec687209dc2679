#pragma once

#include "fused/coordinator.h"
#include "fused/device_limits.h"
#include "kernels/cuda/row_map.h"
#include "kernels/matmul.h"
#include "tensor/dtype.h"

namespace tessera::fused::cuda {

using kernels::Activation;
using tensor::DType;

constexpr int kThreads = 256;  ///< working threads of a block
constexpr int kBoxRows = 32;   ///< rows that the copy engine fetches at once
constexpr int kMostRanks = kMostDeviceRanks, kMostExperts = kMostDeviceExperts;

/// The weights of an expert, row major in device memory, as kernels::ExpertView.
struct ExpertData {
  const void *up, *down;
  const float *up_scales, *down_scales;  ///< i8 only
  const float *up_bias, *down_bias;      ///< or null
};

/// How a rank's part of a launch ended.
struct Ending {
  enum class Kind : int32_t {
    unknown,    ///< the kernel did not reach the end
    done,       ///< the layer is computed
    waited,     ///< an arrival is missing; see `missing`
    refused,    ///< impossible counts of missing.peer
    many_rows,  ///< more rows for rank missing.peer than the layout has room for
    no_expert,  ///< an id without an expert
  } kind = Kind::unknown;
  Arrival missing{};
  uint64_t epoch = 0;
  int64_t finished = 0, bound = 0;  ///< tasks
};

/// A rank's part of a layer: pointers into device memory. For a rank on another GPU the buffer
/// alone.
struct RankWork {
  Coordinator* coordinator;
  std::byte* heap;   ///< own symmetric buffer, in memory that all ranks may write; null: reached by
                     ///< NVSHMEM alone (kernels/cuda/far.cuh)
  const void* x;     ///< [tokens, hidden]
  int64_t x_stride;  ///< elements
  int64_t tokens;
  const int32_t* ids;  ///< [tokens, slots], -1: none
  const float* weights;
  const void* shared;  ///< [tokens, hidden] or null
  int64_t shared_stride;
  void* rows;       ///< [tokens * slots, hidden]
  void* y;          ///< null: no sums
  int32_t* pairs;   ///< (token, slot) by peer and expert
  int32_t* begins;  ///< [ranks * experts + 1]
  int32_t* counts;  ///< [threads, ranks * experts], of the sort
  std::byte* inner;
  uint64_t* stop;  ///< the finished epoch
  Ending* ending;
  int32_t first_expert;  ///< in Work::bank
  /// Rows of the heap in their order, if of the weights' type, and inner activations, slot by slot;
  /// for kernels with a copy engine.
  kernels::cuda::RowMap heap_map, inner_map;
};

/// Where the copy engine finds the weights of an expert.
struct ExpertMaps {
  kernels::cuda::RowMap up, down;
};

/// The ranks of a layer, those of this launch, and their agreement.
struct Work {
  Layout layout;
  int32_t first_rank, rank_count;  ///< ranks of this launch
  DType dtype, weights;            ///< rows and weights
  Activation activation;
  int32_t processors;  ///< blocks of a rank beside its scheduler
  int32_t up_parts, down_parts;
  int32_t block;    ///< tokens of a combine task
  int32_t experts;  ///< all of the layer
  int32_t slots;    ///< experts of a token
  int64_t hidden, inner;
  int64_t slot_rows, slot_bytes;  ///< inner activations of a slot
  int64_t patience;               ///< turns of a wait
  uint64_t epoch;
  RankWork ranks[kMostRanks];
  int32_t group_of[kMostExperts];  ///< rank * layout.experts + place there
  ExpertData bank[kMostExperts];   ///< by rank
  const ExpertMaps* maps;          ///< as bank; null: kernels read the weights themselves
};
static_assert(sizeof(Work) < 32000, "parameters of a kernel");

/// Deliberate faults of the protocol, for tests.
enum class Fault {
  none,
  flag_without_fence,  ///< a flag may pass its rows
  flag_before_rows,
  flag_before_barrier,  ///< a flag before other threads' rows
  flag_of_last_epoch,
  any_epoch_of_flags,
  any_epoch_of_counts,
  counts_to_one_peer,
  bell_before_work,
  bell_not_cleared,
  place_freed_unread,   ///< results' places are used again before they were read
  task_read_early,      ///< before its bell
  stage_read_early,     ///< weights are multiplied before their copy has arrived
  stage_filled_early,   ///< and overwritten by the next copy before they were multiplied
  boxes_without_fence,  ///< the copy engine may miss rows that threads wrote
};
/// No fault; code for faults is left out.
struct Sound {
  static constexpr bool is(Fault) { return false; }
};

}  // namespace tessera::fused::cuda
