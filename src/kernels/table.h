#pragma once

#include <span>

#include "kernels/isa.h"
#include "tensor/storage.h"

namespace tessera::kernels {

struct MatmulArgs;
struct ExpertsArgs;
struct ExpertTiles;
struct CombineArgs;
struct AttentionArgs;
struct NormArgs;
struct ElementwiseArgs;
struct ConvArgs;
struct RopeArgs;
struct ChannelMomentsArgs;
struct ChannelAffineArgs;
struct RouterScoresArgs;
struct TopKArgs;
struct RouteArgs;
struct VotesArgs;
struct CoresetsArgs;
struct InsideArgs;
struct MagnitudesArgs;
struct FatesArgs;
struct TailArgs;
struct CopyArgs;
struct MoveRowsArgs;
struct WavesArgs;
struct GroupScaleShiftArgs;
struct PlaneAffineArgs;
struct BiasedAttentionArgs;
struct LinearStepArgs;
struct LearnedRangeStepArgs;
struct FlowStepArgs;
struct GuideArgs;
struct PeaksArgs;
struct FiniteArgs;

/// Kernels of a device and instruction set. Each takes plain pointers and sizes as arguments and
/// may split its work over tensor::parallel_tasks.
struct KernelTable {
  void (*matmul)(const MatmulArgs&) = nullptr;
  /// Several independent products; null: use matmul for each.
  void (*matmul_group)(std::span<const MatmulArgs>) = nullptr;
  void (*experts)(const ExpertsArgs&) = nullptr;
  const ExpertTiles* expert_tiles = nullptr;  ///< same, tile by tile; null: unsupported
  void (*combine)(const CombineArgs&) = nullptr;
  void (*attention)(const AttentionArgs&) = nullptr;
  void (*norm)(const NormArgs&) = nullptr;
  void (*elementwise)(const ElementwiseArgs&) = nullptr;
  void (*rope)(const RopeArgs&) = nullptr;
  void (*conv)(const ConvArgs&) = nullptr;
  void (*channel_moments)(const ChannelMomentsArgs&) = nullptr;
  void (*channel_affine)(const ChannelAffineArgs&) = nullptr;
  void (*router_scores)(const RouterScoresArgs&) = nullptr;
  void (*top_k)(const TopKArgs&) = nullptr;
  void (*route)(const RouteArgs&) = nullptr;
  void (*expert_votes)(const VotesArgs&) = nullptr;
  void (*coresets)(const CoresetsArgs&) = nullptr;
  void (*choose_inside)(const InsideArgs&) = nullptr;
  void (*magnitudes)(const MagnitudesArgs&) = nullptr;
  void (*token_fates)(const FatesArgs&) = nullptr;
  void (*drop_tail)(const TailArgs&) = nullptr;
  void (*copy)(const CopyArgs&) = nullptr;
  void (*move_rows)(const MoveRowsArgs&) = nullptr;
  void (*waves)(const WavesArgs&) = nullptr;
  void (*group_scale_shift)(const GroupScaleShiftArgs&) = nullptr;
  void (*plane_affine)(const PlaneAffineArgs&) = nullptr;
  void (*biased_attention)(const BiasedAttentionArgs&) = nullptr;
  void (*linear_step)(const LinearStepArgs&) = nullptr;
  void (*learned_range_step)(const LearnedRangeStepArgs&) = nullptr;
  void (*flow_step)(const FlowStepArgs&) = nullptr;
  void (*guide)(const GuideArgs&) = nullptr;
  void (*peaks)(const PeaksArgs&) = nullptr;  ///< on a CPU row by row
  void (*all_finite)(const FiniteArgs&) = nullptr;
};

/// Kernels for a CPU instruction set: for each operation the strongest supported version.
const KernelTable& cpu_table(Isa isa);
/// cpu_table(active_isa()).
const KernelTable& cpu_table();
/// Kernels of a GPU: all data pointers are device pointers, including small arrays (rows, spans,
/// ids); structs behind pointers are in host memory. Throws Error(usage) in a program without CUDA.
const KernelTable& cuda_table();
/// Replaces cuda_table() in tests; null: no replacement.
void replace_cuda_table(const KernelTable* table);
/// Kernels for tensors on a device; `isa` selects the CPU's.
const KernelTable& table_of(tensor::Device device, Isa isa = active_isa());

}  // namespace tessera::kernels
