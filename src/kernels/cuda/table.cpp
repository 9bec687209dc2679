#include "kernels/table.h"

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

namespace tessera::kernels {

const KernelTable& cuda_table() {
  static const KernelTable table = [] {
    KernelTable t;
    t.matmul = cuda::matmul;
    t.matmul_group = cuda::matmul_group;
    t.experts = cuda::experts;
    t.combine = cuda::combine;
    t.attention = cuda::attention;
    t.conv = cuda::conv;
    t.elementwise = cuda::elementwise;
    t.norm = cuda::norm;
    t.rope = cuda::rope;
    t.channel_moments = cuda::channel_moments;
    t.channel_affine = cuda::channel_affine;
    t.group_scale_shift = cuda::group_scale_shift;
    t.route = cuda::route;
    t.expert_votes = cuda::expert_votes;
    t.coresets = cuda::coresets;
    t.choose_inside = cuda::choose_inside;
    t.magnitudes = cuda::magnitudes;
    t.token_fates = cuda::token_fates;
    t.drop_tail = cuda::drop_tail;
    t.copy = cuda::copy;
    t.move_rows = cuda::move_rows;
    t.waves = cuda::waves;
    t.plane_affine = cuda::plane_affine;
    t.biased_attention = cuda::biased_attention;
    t.linear_step = cuda::linear_step;
    t.learned_range_step = cuda::learned_range_step;
    t.flow_step = cuda::flow_step;
    t.guide = cuda::guide;
    t.peaks = cuda::peaks;
    t.all_finite = cuda::all_finite;
    return t;
  }();
  return table;
}

}  // namespace tessera::kernels
