// Attention at the shapes of diffusion transformers and of an autoencoder's middle block.
// Arguments: threads (1), then one shape "TOKENSxHEADSxHEAD_DIM" for that alone. TESSERA_ISA forces
// a weaker instruction set. Queries, keys and values are slices of one fused projection. With
// --device cuda or --turns, see place.h, one shape only.
#include <array>
#include <sstream>

#include "bench.h"
#include "ops/attention.h"
#include "place.h"

using namespace tessera;
using tensor::DType;
using tensor::Tensor;

namespace {

struct Shape {
  int64_t tokens, heads, dim;
};
constexpr Shape kShapes[] = {{64, 12, 32},   {256, 6, 64},    {1024, 16, 72},
                             {1024, 24, 64}, {1024, 24, 128}, {4096, 16, 72},
                             {4096, 24, 64}, {4096, 24, 128}, {4096, 1, 512}};

void measure(Shape s, DType dtype, const bench::Place& place) {
  const int64_t width = s.heads * s.dim;
  const Tensor all = place(bench::random_tensor({s.tokens, 3 * width}, dtype, 1));
  const Tensor q = all.slice(1, 0, width), k = all.slice(1, width, 2 * width),
               v = all.slice(1, 2 * width, 3 * width);
  const std::array<ops::AttentionSpan, 1> spans = {{{0, s.tokens, 0, s.tokens}}};
  const int heads = static_cast<int>(s.heads);
  if (place.on_gpu() || place.turns)
    return place.measure(
        std::string("attention ") + tensor::name_of(dtype),
        fmt::format("{}x{}x{}", s.tokens, s.heads, s.dim), 5,
        [&] { ops::attention(q, k, v, heads, heads, spans); }, 10);
  const double flops = 4.0 * static_cast<double>(s.tokens) * static_cast<double>(s.tokens * width);
  const int calls = std::max(1, static_cast<int>(3e8 / flops));
  auto run = [&] {
    for (int i = 0; i < calls; ++i) ops::attention(q, k, v, heads, heads, spans);
  };
  if (flops < 1e10) run();
  // The units are probed again between the runs: somebody else may share the core.
  double seconds = 1e30, peak = 0;
  for (int i = 0; i < 3; ++i) {
    peak = std::max(peak, kernels::probe_units().product(dtype == DType::bf16));
    seconds = std::min(seconds, kernels::best_seconds(run, flops < 5e10 ? 2 : 1));
  }
  seconds /= calls;
  bench::print(std::string("attention ") + tensor::name_of(dtype),
               fmt::format("{}x{}x{}", s.tokens, s.heads, s.dim), flops, 0, seconds, peak, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Place place(argc, argv);
  const bench::Threads threads(argc, argv);
  if (argc > 2) {
    Shape s{};
    char x;
    std::istringstream(argv[2]) >> s.tokens >> x >> s.heads >> x >> s.dim;
    measure(s, argc > 3 && std::string(argv[3]) == "f32" ? DType::f32 : DType::bf16, place);
    return 0;
  }
  for (const Shape& s : kShapes) measure(s, DType::bf16, place);
  measure({1024, 16, 72}, DType::f32, place);
}
