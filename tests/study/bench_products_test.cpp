#include "study/bench_lines.h"

namespace tessera::study {
namespace {

TEST(BenchProducts, CoversEveryKernelThatMultiplies) {
  const auto lines = lines_of(bench_products);
  const std::map<std::string, int> all = {
      {"matmul_bf16", 4},        {"matmul_f32", 4},     {"matmul_bias_gelu_bf16", 1},
      {"matmul_swiglu_bf16", 1}, {"attention_bf16", 5}, {"matmul_gated_residual_bf16", 1},
      {"attention_f32", 1},      {"experts_bf16", 3},   {"biased_attention_bf16", 1},
      {"experts_i8", 3},         {"conv3x3_bf16", 2},   {"conv1x1_bf16", 1}};
  EXPECT_EQ(lines, all);
}

}  // namespace
}  // namespace tessera::study
