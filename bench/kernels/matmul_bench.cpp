// Products at the shapes of diffusion transformers. Arguments: threads (1), "small" for few rows
// only, "large" for many rows only. TESSERA_ISA forces a weaker instruction set.
#include <cmath>

#include "bench.h"
#include "ops/matmul.h"

using namespace tessera;
using tensor::DType;
using tensor::Tensor;

namespace {

struct Shape {
  int64_t n, k;
};
constexpr Shape kShapes[] = {{384, 384}, {1536, 384}, {1152, 1152}, {4608, 1152}, {3072, 3072}};
constexpr int64_t kBeyondCache = int64_t{320}
                                 << 20;  // bytes of weights: few rows read them from memory

// With few rows, every call uses other weights, so that they come from memory.
void measure(int64_t m, Shape s, DType dtype, ops::Activation act, const kernels::Limits& limits) {
  const int64_t bytes = s.n * s.k * size_of(dtype);
  const int64_t copies = m <= 64 ? std::max<int64_t>(1, kBeyondCache / bytes) : 1;
  const Tensor w = bench::random_tensor({s.n, s.k}, dtype, 1, 1 / std::sqrt(float(s.k)));
  std::vector<ops::Weight> weights;
  for (int64_t i = 0; i < copies; ++i) weights.push_back(ops::pack_weight(w, dtype));
  const Tensor x = bench::random_tensor({m, s.k}, dtype, 2);
  ops::MatmulOptions options;
  options.bias = bench::random_tensor({s.n}, DType::f32, 3);
  options.activation = act;
  auto run = [&] {
    for (const ops::Weight& weight : weights) ops::matmul(x, weight, options);
  };
  run();
  // Probes the units again between the runs, because other processes may share the core.
  double seconds = 1e30, peak = 0;
  for (int i = 0; i < 5; ++i) {
    peak = std::max(peak, kernels::probe_units().product(dtype == DType::bf16));
    seconds = std::min(seconds, kernels::best_seconds(run, 2));
  }
  const double calls = static_cast<double>(copies);
  const double flops = 2.0 * static_cast<double>(m * s.n) * static_cast<double>(s.k) * calls;
  bench::print(std::string("matmul ") + tensor::name_of(dtype) +
                   (act == ops::Activation::gelu_tanh ? " gelu_tanh" : ""),
               fmt::format("{}x{}x{}", m, s.n, s.k), flops, static_cast<double>(bytes) * calls,
               seconds, peak, m <= 64 ? limits.read : 0);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Threads threads(argc, argv);
  const std::string only = argc > 2 ? argv[2] : "";
  long rows = 0, n = 0, k = 0;
  if (std::sscanf(only.c_str(), "%ldx%ldx%ld", &rows, &n, &k) == 3) {
    measure(rows, {n, k}, DType::bf16, ops::Activation::none,
            rows <= 64 ? kernels::probe_limits() : kernels::Limits{});
    return 0;
  }
  const kernels::Limits limits = only == "large" ? kernels::probe_units() : kernels::probe_limits();
  std::printf(
      "{\"bench\":\"limits\",\"bf16_gflops\":%.1f,\"f32_gflops\":%.1f,\"read_gbytes_per_s\":%.2f}"
      "\n",
      limits.product(true) / 1e9, limits.product(false) / 1e9, limits.read / 1e9);
  if (only != "small")
    for (DType dtype : {DType::bf16, DType::f32})
      for (const Shape& s : kShapes)
        for (int64_t m : {256, 1024}) measure(m, s, dtype, ops::Activation::none, limits);
  if (only != "small") measure(1024, {4608, 1152}, DType::bf16, ops::Activation::gelu_tanh, limits);
  if (only != "large")
    for (const Shape& s : {Shape{1152, 1152}, Shape{4608, 1152}, Shape{3072, 3072}})
      for (int64_t m : {1, 2, 4, 8, 16, 32, 64})
        measure(m, s, DType::bf16, ops::Activation::none, limits);
}
