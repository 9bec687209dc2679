#pragma once

#include "kernels/isa.h"
#include "tensor/storage.h"

namespace tessera::kernels {

struct MatmulArgs;
struct ExpertsArgs;
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

/// The kernels of one device and instruction set. Each takes plain pointers and sizes and
/// everything it needs as arguments; it may cut its work over tensor::parallel_tasks.
struct KernelTable {
  void (*matmul)(const MatmulArgs&) = nullptr;
  void (*experts)(const ExpertsArgs&) = nullptr;
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
};

/// The kernels for an instruction set of the CPU: the strongest version of each that it can run.
const KernelTable& cpu_table(Isa isa);
/// cpu_table(active_isa()).
const KernelTable& cpu_table();

}  // namespace tessera::kernels
