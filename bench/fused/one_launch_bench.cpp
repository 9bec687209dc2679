// A layer of experts in one launch, by virtual ranks of one GPU, beside the separate launches.
// Lines for 1, 2 and 4 ranks; the rows of both are compared first. Arguments: "--device cuda",
// threads (1), shapes "TOKENSxHIDDENxINNERxEXPERTSxSLOTS" (those of thesis and models).
#include <cmath>
#include <numeric>

#include "bench.h"
#include "fused/cuda/operator.h"
#include "ops/experts.h"
#include "place.h"

using namespace tessera;
using fused::cuda::DeviceOperator;
using tensor::DType;
using tensor::Tensor;

namespace {

struct Sizes {
  int64_t tokens, hidden, inner;
  int experts, slots;
};

struct Bank {
  std::vector<ops::Expert> experts;
  std::vector<kernels::ExpertView> views;

  Bank(const Sizes& s, const bench::Place& place) {
    const float scale = 1 / std::sqrt(float(s.hidden));
    for (int e = 0; e < s.experts; ++e) {
      const auto seed = static_cast<uint32_t>(2 * e);
      const Tensor up = place(bench::random_tensor({s.inner, s.hidden}, DType::bf16, seed, scale));
      experts.push_back({ops::pack_paired_weight(up, up, DType::bf16),
                         ops::pack_weight(place(bench::random_tensor({s.hidden, s.inner},
                                                                     DType::bf16, seed + 1, scale)),
                                          DType::bf16)});
    }
    for (const ops::Expert& e : experts) views.push_back({e.up.get(), e.down.get()});
  }
};

ops::Routing random_routing(const Sizes& s) {
  ops::Routing r{Tensor::empty({s.tokens, s.slots}, DType::i32),
                 Tensor::empty({s.tokens, s.slots}, DType::f32)};
  std::mt19937 generator(7);
  std::vector<int32_t> ids(static_cast<size_t>(s.experts));
  std::iota(ids.begin(), ids.end(), 0);
  for (int64_t t = 0; t < s.tokens; ++t) {
    std::shuffle(ids.begin(), ids.end(), generator);
    std::copy_n(ids.begin(), s.slots, r.ids.row<int32_t>(t));
    std::fill_n(r.weights.row<float>(t), s.slots, 1.0f / static_cast<float>(s.slots));
  }
  return r;
}

// Layers of the ranks: neighbouring tokens and experts.
std::vector<DeviceOperator::Layer> layers_of(const Sizes& s, int ranks, const Tensor& x,
                                             const ops::Routing& routing, const Bank& bank,
                                             const Tensor& y) {
  std::vector<DeviceOperator::Layer> layers;
  for (int r = 0; r < ranks; ++r) {
    const int64_t first = s.tokens * r / ranks, last = s.tokens * (r + 1) / ranks;
    layers.push_back({x.slice(0, first, last).raw(), s.hidden, last - first,
                      static_cast<const int32_t*>(routing.ids.slice(0, first, last).raw()),
                      routing.weights.slice(0, first, last).data<float>(), nullptr, 0,
                      bank.views.data() + int64_t{s.experts} * r / ranks,
                      y.slice(0, first, last).raw()});
  }
  return layers;
}

void measure(const Sizes& s, const bench::Place& place) {
  const Bank bank(s, place);
  const Tensor x = place(bench::random_tensor({s.tokens, s.hidden}, DType::bf16, 3));
  ops::Routing routing = random_routing(s);
  routing = {place(routing.ids), place(routing.weights)};
  const std::string shape =
      fmt::format("{}x{}x{}x{}x{}", s.tokens, s.hidden, s.inner, s.experts, s.slots);
  const Tensor want = ops::experts(x, routing, bank.experts);
  place.measure("separate launches", shape, 5, [&] { ops::experts(x, routing, bank.experts); });
  for (const int ranks : {1, 2, 4}) {
    std::vector<int> owner;
    for (int e = 0; e < s.experts; ++e)
      for (int r = 0; r < ranks; ++r)
        if (e >= s.experts * r / ranks && e < s.experts * (r + 1) / ranks) owner.push_back(r);
    DeviceOperator device_operator({ranks, owner, (s.tokens + ranks - 1) / ranks, s.slots, s.hidden,
                                    s.inner, DType::bf16, DType::bf16},
                                   {});
    const Tensor y = place(Tensor::zeros({s.tokens, s.hidden}, DType::bf16));
    const auto layers = layers_of(s, ranks, x, routing, bank, y);
    device_operator.run(layers);
    const auto result = y.to_floats(), right = want.to_floats();
    std::puts(
        fmt::format("{{\"bench\":\"one launch of {} ranks\",\"shape\":\"{}\",\"same_bits\":{},"
                    "\"processors\":{}}}",
                    ranks, shape, result == right, device_operator.processors())
            .c_str());
    place.measure(fmt::format("one launch of {} ranks", ranks), shape, 5,
                  [&] { device_operator.run(layers); });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Place place(argc, argv);
  if (!place.on_gpu()) {
    std::fputs("one_launch_bench: --device cuda is needed\n", stderr);
    return 2;
  }
  const bench::Threads threads(argc, argv);
  std::vector<Sizes> cases;
  for (int i = 2; i < argc; ++i) {
    long tokens = 0, hidden = 0, inner = 0;
    Sizes sizes{};
    if (std::sscanf(argv[i], "%ldx%ldx%ldx%dx%d", &tokens, &hidden, &inner, &sizes.experts,
                    &sizes.slots) != 5) {
      std::fprintf(stderr, "one_launch_bench: '%s'; expected 256x2048x1024x64x8\n", argv[i]);
      return 2;
    }
    sizes.tokens = tokens, sizes.hidden = hidden, sizes.inner = inner;
    cases.push_back(sizes);
  }
  // The thesis's layer; DiT-MoE-XL, LLaDA2 and DiffusionGemma.
  if (cases.empty())
    for (const int64_t tokens : {64, 256, 4096, 16384})
      for (const Sizes& s : {Sizes{0, 2048, 2048, 64, 2}, Sizes{0, 1152, 4608, 8, 2},
                             Sizes{0, 2048, 512, 256, 8}, Sizes{0, 2816, 704, 128, 8}})
        cases.push_back({tokens, s.hidden, s.inner, s.experts, s.slots});
  for (const Sizes& s : cases) measure(s, place);
}
