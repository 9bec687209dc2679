// A layer of experts: few tokens are bound by reading the weights, many by products. Arguments:
// threads (1), a shape "TOKENSxHIDDENxINNERxEXPERTSxSLOTS" for only this shape, then i8 to compare
// weights in i8 and in bf16 in turn, by medians of nine rounds. With --device cuda or --turns, see
// place.h; the routing is fixed in all cases.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "bench.h"
#include "ops/experts.h"
#include "place.h"

using namespace tessera;
using tensor::DType;
using tensor::Tensor;

namespace {

struct Layer {
  int64_t hidden, inner;
  int experts, slots;
};

std::vector<ops::Expert> bank_of(const Layer& l, const bench::Place& place,
                                 const ops::WeightForm& form = DType::bf16) {
  const float scale = 1 / std::sqrt(float(l.hidden));
  const Tensor up = place(bench::random_tensor({l.inner, l.hidden}, DType::bf16, 1, scale));
  const Tensor down = place(bench::random_tensor({l.hidden, l.inner}, DType::bf16, 2, scale));
  std::vector<ops::Expert> bank;
  for (int e = 0; e < l.experts; ++e)
    bank.push_back({ops::pack_paired_weight(up, up, form), ops::pack_weight(down, form)});
  return bank;
}

// Sends each token to `slots` different experts with equal weights.
ops::Routing route_evenly(int64_t tokens, const Layer& l) {
  ops::Routing r{Tensor::empty({tokens, l.slots}, DType::i32),
                 Tensor::empty({tokens, l.slots}, DType::f32)};
  std::mt19937 generator(7);
  std::vector<int32_t> ids(static_cast<size_t>(l.experts));
  std::iota(ids.begin(), ids.end(), 0);
  for (int64_t t = 0; t < tokens; ++t) {
    std::shuffle(ids.begin(), ids.end(), generator);
    std::copy_n(ids.begin(), l.slots, r.ids.row<int32_t>(t));
    std::fill_n(r.weights.row<float>(t), l.slots, 1.0f / static_cast<float>(l.slots));
  }
  return r;
}

double touched_bytes(const ops::Routing& r, const std::vector<ops::Expert>& bank) {
  std::vector<bool> is_used(bank.size());
  for (int64_t id : r.ids.to_ints()) is_used[static_cast<size_t>(id)] = true;
  return static_cast<double>(std::count(is_used.begin(), is_used.end(), true)) *
         static_cast<double>(bank[0].up->data.bytes() + bank[0].down->data.bytes());
}

void measure(int64_t tokens, const Layer& l, const std::vector<ops::Expert>& bank,
             kernels::Limits limits, const bench::Place& place) {
  const Tensor x = place(bench::random_tensor({tokens, l.hidden}, DType::bf16, 3));
  ops::Routing routing = route_evenly(tokens, l);
  routing = {place(routing.ids), place(routing.weights)};
  auto run = [&] { ops::experts(x, routing, bank); };
  const std::string shape =
      fmt::format("{}t {}x{} {}e top{}", tokens, l.hidden, l.inner, l.experts, l.slots);
  if (place.on_gpu() || place.turns) return place.measure("experts bf16", shape, 5, run, 1);
  run();
  double seconds = 1e30, peak = limits.product(true);
  for (int i = 0; i < 4; ++i) {
    peak = std::max(peak, kernels::probe_units().product(true));
    seconds = std::min(seconds, kernels::best_seconds(run, 2));
  }
  const double flops = 6.0 * static_cast<double>(tokens * l.slots * l.hidden * l.inner);
  bench::print("experts bf16", shape, flops, touched_bytes(routing, bank), seconds, peak,
               limits.read);
}

// All banks in turn: other work on the core slows each of them alike.
void compare_forms(int64_t tokens, const Layer& l, kernels::Limits limits,
                   const bench::Place& place) {
  ops::WeightForm int4 = DType::i8;
  int4.int4 = true;
  const std::array<ops::WeightForm, 3> forms{DType::bf16, DType::i8, int4};
  std::array<std::vector<ops::Expert>, 3> banks;
  for (size_t i = 0; i < forms.size(); ++i) banks[i] = bank_of(l, place, forms[i]);
  const Tensor x = bench::random_tensor({tokens, l.hidden}, DType::bf16, 3);
  const ops::Routing routing = route_evenly(tokens, l);
  std::array<std::vector<double>, 3> seconds;
  for (int round = 0; round < 10; ++round)
    for (size_t i = 0; i < forms.size(); ++i) {
      const double s = kernels::best_seconds([&] { ops::experts(x, routing, banks[i]); }, 1);
      if (round > 0) seconds[i].push_back(s);
    }
  const double flops = 6.0 * static_cast<double>(tokens * l.slots * l.hidden * l.inner);
  const double peak = std::max(limits.product(true), kernels::probe_units().product(true));
  for (size_t i = 0; i < forms.size(); ++i)
    bench::print("experts " + ops::name_of(forms[i]),
                 fmt::format("{}t {}x{} {}e top{}", tokens, l.hidden, l.inner, l.experts, l.slots),
                 flops, touched_bytes(routing, banks[i]), bench::median(seconds[i]), peak,
                 limits.read);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Place place(argc, argv);
  const bench::Threads threads(argc, argv);
  const kernels::Limits limits =
      place.on_gpu() || place.turns ? kernels::Limits{} : kernels::probe_limits();
  Layer layer{};
  long tokens = 0, hidden = 0, inner = 0;
  if (argc > 2 && std::sscanf(argv[2], "%ldx%ldx%ldx%dx%d", &tokens, &hidden, &inner,
                              &layer.experts, &layer.slots) == 5) {
    layer.hidden = hidden;
    layer.inner = inner;
    if (argc > 3 && std::string(argv[3]) == "quantised")
      return compare_forms(tokens, layer, limits, place), 0;
    measure(tokens, layer, bank_of(layer, place), limits, place);
    return 0;
  }
  for (const Layer& l :
       {Layer{2048, 1024, 64, 8}, Layer{1152, 4608, 8, 2}, Layer{384, 1536, 8, 2}}) {
    const auto bank = bank_of(l, place);
    for (int64_t t : {16, 64, 256, 1024}) measure(t, l, bank, limits, place);
  }
}
