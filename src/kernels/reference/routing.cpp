#include "kernels/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/route_token.h"

namespace tessera::kernels::reference {
void route(const RouteArgs& args) { route_tokens(args, {router_scores, top_k}); }

void router_scores(const RouterScoresArgs& args) {
  const float* x = args.logits;
  double sum = 0;
  const double top =
      args.sigmoid || args.experts == 0 ? 0 : double{*std::max_element(x, x + args.experts)};
  for (int64_t e = 0; e < args.experts; ++e) {
    args.exact[e] = args.sigmoid ? 1 / (1 + std::exp(-double{x[e]})) : std::exp(x[e] - top);
    sum += args.exact[e];
  }
  for (int64_t e = 0; e < args.experts; ++e) {
    if (!args.sigmoid) args.exact[e] /= sum;
    args.score[e] = static_cast<float>(args.exact[e]);
  }
}

void top_k(const TopKArgs& args) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::vector<float> rank(args.rank, args.rank + args.n);
  if (args.closed)
    for (size_t i = 0; i < rank.size(); ++i) rank[i] += args.closed[i];
  for (int j = 0; j < args.k; ++j) {
    int32_t best = -1;
    float value = kNone;
    for (size_t i = 0; i < rank.size(); ++i)
      if (rank[i] > value) {
        value = rank[i];
        best = static_cast<int32_t>(i);
      }
    args.ids[j] = best;
    if (best >= 0) rank[static_cast<size_t>(best)] = kNone;
  }
}

}  // namespace tessera::kernels::reference
