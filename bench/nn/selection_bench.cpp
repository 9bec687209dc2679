// Selection of experts under des-vote for the tokens of a block: softmax, vanilla choice, votes,
// coreset and the choice inside the coreset.
//   selection_bench [threads] [tokens x experts x top_k] [beta]
#include <algorithm>
#include <cstdio>
#include <vector>

#include "bench.h"
#include "nn/moe/expert_selection.h"

using namespace tessera;
using tensor::DType;

int main(int argc, char** argv) {
  const bench::Threads threads(argc, argv);
  long tokens = 64;
  int experts = 64, top_k = 8;
  if (argc > 2) std::sscanf(argv[2], "%ldx%dx%d", &tokens, &experts, &top_k);
  const auto rule = nn::parse_selection(std::string("des-vote:") + (argc > 3 ? argv[3] : "0.4"));
  const tensor::Tensor logits = bench::random_tensor({tokens, experts}, DType::f32, 3);
  const ops::RoutingOptions router{.top_k = top_k};
  const std::vector<int32_t> group(static_cast<size_t>(tokens));
  auto run = [&] { nn::select_experts(logits, router, rule, {group, {}}); };
  auto vanilla = [&] { ops::route(logits, router); };
  run();
  const double seconds = kernels::best_seconds(run, 200);
  fmt::print(
      "{{\"bench\":\"selection\",\"shape\":\"{}x{}x{}\",\"threads\":{},\"ms\":{:.5f},"
      "\"router_ms\":{:.5f}}}\n",
      tokens, experts, top_k, tensor::thread_count(), seconds * 1e3,
      kernels::best_seconds(vanilla, 200) * 1e3);
}
