#include "kernels/table.h"

#include <array>
#include <atomic>

#include "kernels/attention.h"
#include "kernels/biased_attention.h"
#include "kernels/conv.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "kernels/experts.h"
#include "kernels/finite.h"
#include "kernels/group_norm.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/plane_affine.h"
#include "kernels/rope.h"
#include "kernels/routing.h"
#include "kernels/sampling.h"
#include "kernels/selection.h"
#include "kernels/waves.h"
#include "tensor/device_pool.h"

namespace tessera::kernels {
namespace {

KernelTable table_for(Isa isa) {
  KernelTable table;
  table.matmul = reference::matmul;
  table.attention = reference::attention;
  table.norm = reference::norm;
  table.elementwise = reference::elementwise;
  table.rope = reference::rope;
  table.experts = reference::experts;
  table.expert_tiles = &reference::expert_tiles();
  table.combine = reference::combine;
  table.conv = reference::conv;
  table.channel_moments = reference::channel_moments;
  table.channel_affine = reference::channel_affine;
  table.router_scores = reference::router_scores;
  table.top_k = reference::top_k;
  table.route = reference::route;
  table.expert_votes = reference::expert_votes;
  table.coresets = reference::coresets;
  table.choose_inside = reference::choose_inside;
  table.magnitudes = reference::magnitudes;
  table.token_fates = reference::token_fates;
  table.drop_tail = reference::drop_tail;
  table.copy = reference::copy;
  table.move_rows = reference::move_rows;
  table.waves = reference::waves;
  table.group_scale_shift = reference::group_scale_shift;
  table.plane_affine = reference::plane_affine;
  table.biased_attention = reference::biased_attention;
  table.linear_step = reference::linear_step;
  table.learned_range_step = reference::learned_range_step;
  table.flow_step = reference::flow_step;
  table.guide = reference::guide;
  table.peaks = reference::peaks;
  table.all_finite = reference::all_finite;
  if (isa >= Isa::avx2) {
    table.copy = simd::copy;
    table.move_rows = simd::move_rows;
  }
#if defined(__x86_64__)
  if (isa >= Isa::avx2) {
    table.matmul = avx2::matmul;
    table.experts = avx2::experts;
    table.expert_tiles = &avx2::expert_tiles();
    table.combine = avx2::combine;
    table.conv = avx2::conv;
    table.attention = avx2::attention;
    table.biased_attention = avx2::biased_attention;
    table.norm = avx2::norm;
    table.peaks = avx2::peaks;
    table.rope = avx2::rope;
    table.plane_affine = avx2::plane_affine;
    table.elementwise = avx2::elementwise;
    table.channel_moments = avx2::channel_moments;
    table.channel_affine = avx2::channel_affine;
  }
  if (isa >= Isa::avx512) {
    table.matmul = avx512::matmul;
    table.experts = avx512::experts;
    table.expert_tiles = &avx512::expert_tiles();
    table.combine = avx512::combine;
    table.attention = avx512::attention;
    table.biased_attention = avx512::biased_attention;
    table.norm = avx512::norm;
    table.peaks = avx512::peaks;
    table.rope = avx512::rope;
    table.plane_affine = avx512::plane_affine;
    table.elementwise = avx512::elementwise;
    table.conv = avx512::conv;
    table.channel_moments = avx512::channel_moments;
    table.channel_affine = avx512::channel_affine;
    table.route = avx512::route;
    table.expert_votes = avx512::expert_votes;
    table.choose_inside = avx512::choose_inside;
    table.router_scores = avx512::router_scores;
    table.top_k = avx512::top_k;
  }
  if (isa >= Isa::amx) {
    table.matmul = amx::matmul;
    table.experts = amx::experts;
    table.expert_tiles = &amx::expert_tiles();
  }
#endif
  return table;
}

std::atomic<const KernelTable*> stand_in{nullptr};

}  // namespace

const KernelTable& cpu_table(Isa isa) {
  static const std::array<KernelTable, 4> tables = {table_for(Isa::reference), table_for(Isa::avx2),
                                                    table_for(Isa::avx512), table_for(Isa::amx)};
  return tables[static_cast<size_t>(isa)];
}

const KernelTable& cpu_table() { return cpu_table(active_isa()); }

void replace_cuda_table(const KernelTable* table) { stand_in = table; }

const KernelTable& table_of(tensor::Device device, Isa isa) {
  if (!tensor::is_gpu(device)) return cpu_table(isa);
  const KernelTable* const other = stand_in;
  return other ? *other : cuda_table();
}

}  // namespace tessera::kernels
