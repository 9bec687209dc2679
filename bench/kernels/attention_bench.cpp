// Attention at the shapes of diffusion transformers and of an autoencoder's middle block.
// Arguments: threads (1), then a shape "TOKENSxHEADSxHEAD_DIM[xKEY_HEADS]" for only this shape,
// then f32, or bf16 and a mask: causal, or apart (causal, query by query), or "scores": a round of
// bf16 and of int8 scores in turn, five times. TESSERA_ISA forces a
// weaker instruction set. Queries, keys and values are slices of a fused projection. With --device
// cuda or
// --turns, see place.h, only a single shape.
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "bench.h"
#include "ops/attention.h"
#include "place.h"

using namespace tessera;
using tensor::DType;
using tensor::Tensor;

namespace {

struct Shape {
  int64_t tokens, heads, dim, key_heads = 0;  // 0: as many as heads
  std::string mask = "";                      // causal: a query sees earlier keys and its own

  std::string name() const {
    std::string name = fmt::format("{}x{}x{}", tokens, heads, dim);
    if (key_heads > 0) name += fmt::format("x{}", key_heads);
    return mask.empty() ? name : name + " " + mask;
  }
  std::vector<ops::AttentionSpan> spans() const {
    if (mask.empty()) return {{0, tokens, 0, tokens}};
    std::vector<ops::AttentionSpan> spans;
    for (int64_t q = 0; q < tokens; ++q) spans.push_back({q, q + 1, 0, q + 1});
    if (mask == "apart")
      std::reverse(spans.begin(), spans.end());  // no neighbours see more and more
    return spans;
  }
};
constexpr Shape kShapes[] = {{64, 12, 32},   {256, 6, 64},    {1024, 16, 72},
                             {1024, 24, 64}, {1024, 24, 128}, {4096, 16, 72},
                             {4096, 24, 64}, {4096, 24, 128}, {4096, 1, 512}};

void measure(Shape s, DType dtype, const bench::Place& place) {
  const int heads = static_cast<int>(s.heads),
            key_heads = s.key_heads > 0 ? static_cast<int>(s.key_heads) : heads;
  const int64_t width = s.heads * s.dim, narrow = key_heads * s.dim;
  const Tensor qkv = place(bench::random_tensor({s.tokens, width + 2 * narrow}, dtype, 1));
  const Tensor q = qkv.slice(1, 0, width), k = qkv.slice(1, width, width + narrow),
               v = qkv.slice(1, width + narrow, width + 2 * narrow);
  const auto spans = s.spans();
  if (place.on_gpu() || place.turns)
    return place.measure(
        std::string("attention ") + tensor::name_of(dtype), s.name(), 5,
        [&] { ops::attention(q, k, v, heads, key_heads, spans); }, 10);
  const auto visible_keys = static_cast<double>(s.mask.empty() ? 2 * s.tokens : s.tokens + 1);
  const double flops = 2 * visible_keys * static_cast<double>(s.tokens * width);
  const int calls = std::max(1, static_cast<int>(3e8 / flops));
  auto run = [&] {
    for (int i = 0; i < calls; ++i) ops::attention(q, k, v, heads, key_heads, spans);
  };
  if (flops < 1e10) run();
  // Probes the units again between the runs, because other processes may share the core.
  double seconds = 1e30, peak = 0;
  for (int i = 0; i < 3; ++i) {
    peak = std::max(peak, kernels::probe_units().product(dtype == DType::bf16));
    seconds = std::min(seconds, kernels::best_seconds(run, flops < 5e10 ? 2 : 1));
  }
  seconds /= calls;
  bench::print(std::string("attention ") + tensor::name_of(dtype), s.name(), flops, 0, seconds,
               peak, 0);
}

// Times of exact scores over those of int8 scores, in turn: other processes share the core.
void compare_scores(const Shape& s) {
  const int64_t width = s.heads * s.dim;
  const int heads = static_cast<int>(s.heads);
  const Tensor qkv = bench::random_tensor({s.tokens, 3 * width}, DType::bf16, 1);
  const auto part = [&](int64_t i) { return qkv.slice(1, i * width, (i + 1) * width); };
  const auto spans = s.spans();
  const auto seconds = [&](bool int8) {
    return kernels::best_seconds(
        [&] {
          ops::attention(part(0), part(1), part(2), heads, heads, spans, {.int8_scores = int8});
        },
        3);
  };
  std::vector<double> gains;
  for (int round = 0; round < 5; ++round) gains.push_back(seconds(false) / seconds(true));
  std::printf("{\"bench\":\"attention int8 scores\",\"shape\":\"%s\",\"gain\":%.3f}\n",
              s.name().c_str(), bench::median(gains));
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Place place(argc, argv);
  const bench::Threads threads(argc, argv);
  if (argc > 2) {
    Shape s{};
    char x;
    std::istringstream(argv[2]) >> s.tokens >> x >> s.heads >> x >> s.dim >> x >> s.key_heads;
    if (argc > 4 && std::string(argv[4]) == "scores") return compare_scores(s), 0;
    if (argc > 4) s.mask = argv[4];
    measure(s, argc > 3 && std::string(argv[3]) == "f32" ? DType::f32 : DType::bf16, place);
    return 0;
  }
  for (const Shape& s : kShapes) measure(s, DType::bf16, place);
  measure({1024, 16, 72}, DType::f32, place);
}
