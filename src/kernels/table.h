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

/// The kernels of one device and instruction set. Each takes plain pointers and sizes and
/// everything it needs as arguments; it may cut its work over tensor::parallel_tasks.
struct KernelTable {
  void (*matmul)(const MatmulArgs&) = nullptr;
  /// Several that read no result of each other; null: one by one.
  void (*matmul_group)(std::span<const MatmulArgs>) = nullptr;
  void (*experts)(const ExpertsArgs&) = nullptr;
  const ExpertTiles* expert_tiles = nullptr;  ///< the same tile by tile; null: there are none
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
  void (*peaks)(const PeaksArgs&) = nullptr;  ///< on a CPU row after row
  void (*all_finite)(const FiniteArgs&) = nullptr;
};

/// The kernels for an instruction set of the CPU: the strongest version of each that it can run.
const KernelTable& cpu_table(Isa isa);
/// cpu_table(active_isa()).
const KernelTable& cpu_table();
/// The kernels of a GPU: every data pointer that they are given is one of the device, and so are
/// the small arrays (rows, spans, ids); structs behind pointers stay on the host. Throws
/// Error(usage) in a program without CUDA.
const KernelTable& cuda_table();
/// Kernels that stand in for cuda_table(), for tests; null: none do.
void replace_cuda_table(const KernelTable* table);
/// The kernels for tensors on a device; `isa` says which of the CPU's.
const KernelTable& table_of(tensor::Device device, Isa isa = active_isa());

}  // namespace tessera::kernels
