#include "study/bench_lines.h"

namespace tessera::study {
namespace {

TEST(BenchRows, CoversEveryKernelThatMovesRows) {
  const auto lines = lines_of(bench_rows);
  const std::map<std::string, int> all = {{"layer_norm_bf16", 2},
                                          {"rms_norm_of_heads_bf16", 1},
                                          {"rope_bf16", 1},
                                          {"cast_bf16_to_f32", 1},
                                          {"gelu_tanh_bf16", 1},
                                          {"swiglu_bf16", 1},
                                          {"add_gated_bf16", 1},
                                          {"timestep_embedding_f32", 1},
                                          {"route_f32", 3},
                                          {"combine_bf16", 1},
                                          {"permute_to_patches_bf16", 1},
                                          {"gather_rows_bf16", 1},
                                          {"move_rows_bf16", 1},
                                          {"concat_rows_bf16", 1},
                                          {"linear_step_f32", 1},
                                          {"learned_range_step_f32", 1},
                                          {"flow_step_f32", 1},
                                          {"guide_f32", 1},
                                          {"peaks_f32", 1},
                                          {"all_finite_f32", 1},
                                          {"channel_moments_bf16", 1},
                                          {"channel_affine_silu_bf16", 1},
                                          {"group_scale_shift_f32", 1},
                                          {"plane_affine_bf16", 1}};
  EXPECT_EQ(lines, all);
}

}  // namespace
}  // namespace tessera::study
