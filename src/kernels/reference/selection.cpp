#include "kernels/selection.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "tensor/scope.h"
#include "tensor/tensor.h"

namespace tessera::kernels::reference {
namespace {

constexpr int64_t kGrain = 64;

// Tokens by importance; ties keep their order.
template <class Before>
void mark(std::vector<int64_t>& tokens, double share, int8_t fate, const Before& before,
          int8_t* fates) {
  const auto count = static_cast<size_t>(std::floor(share * static_cast<double>(tokens.size())));
  std::stable_sort(tokens.begin(), tokens.end(), before);
  for (size_t i = 0; i < count; ++i) fates[tokens[i]] = fate;
  std::sort(tokens.begin(), tokens.end());
}

void drop(int32_t* ids, float* weights, const TailArgs& args, double beta) {
  std::vector<std::pair<float, int32_t>> choices;
  for (int j = 0; j < args.slots; ++j)
    if (ids[j] >= 0) choices.emplace_back(weights[j], ids[j]);
  std::stable_sort(choices.begin(), choices.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  double total = 0, tail = 0;
  for (const auto& [weight, id] : choices) total += double(weight);
  size_t keep = choices.size();
  while (keep > 1 && tail + double(choices[keep - 1].first) < beta * total)
    tail += double(choices[--keep].first);
  const float scale =
      args.renormalise ? static_cast<float>(double(args.full) / (total - tail)) : 1.0f;
  for (size_t j = 0; j < static_cast<size_t>(args.slots); ++j) {
    ids[j] = j < keep ? choices[j].second : -1;
    weights[j] = j < keep ? choices[j].first * scale : 0;
  }
}

}  // namespace

void expert_votes(const VotesArgs& args) { kernels::expert_votes(args, {router_scores, top_k}); }
void choose_inside(const InsideArgs& args) { kernels::choose_inside(args, {router_scores, top_k}); }

void coresets(const CoresetsArgs& args) {
  const int64_t count = std::clamp<int64_t>(args.count, 0, args.experts);
  std::vector<int64_t> order(static_cast<size_t>(args.experts));
  for (int64_t g = 0; g < args.groups; ++g) {
    const int64_t* votes = args.votes + g * args.experts;
    uint8_t* cores = args.cores + g * args.experts;
    for (int64_t e = 0; e < args.experts; ++e) cores[e] = votes[e] >= args.bar;
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto last = order.begin() + count;
    if (count < args.experts)
      std::nth_element(order.begin(), last, order.end(), [&](int64_t e, int64_t f) {
        return votes[e] > votes[f] || (votes[e] == votes[f] && e < f);
      });
    for (auto e = order.begin(); e != last; ++e) cores[*e] = 1;
  }
}

void magnitudes(const MagnitudesArgs& args) {
  tensor::with_float_type(args.dtype, [&](auto type) {
    const auto* x = static_cast<const decltype(type)*>(args.x);
    tensor::parallel_for(args.rows, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        float sum = 0;
        for (int64_t c = 0; c < args.columns; ++c)
          sum += std::abs(tensor::to_float(x[t * args.stride + c]));
        args.sums[t] = sum;
      }
    });
  });
}

void token_fates(const FatesArgs& args) {
  std::fill_n(args.fates, args.tokens, int8_t{0});
  std::vector<std::vector<int64_t>> groups(static_cast<size_t>(args.groups));
  for (int64_t t = 0; t < args.tokens; ++t)
    if (args.group_of[t] >= 0) groups[static_cast<size_t>(args.group_of[t])].push_back(t);
  const float* x = args.importance;
  for (auto& tokens : groups) {
    mark(
        tokens, args.low, -1, [&](int64_t a, int64_t b) { return x[a] < x[b]; }, args.fates);
    mark(
        tokens, args.high, 1, [&](int64_t a, int64_t b) { return x[a] > x[b]; }, args.fates);
  }
}

void drop_tail(const TailArgs& args) {
  tensor::parallel_for(args.tokens, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (args.group_of[t] < 0) continue;
      int32_t* ids = args.ids + t * args.slots;
      float* weights = args.weights + t * args.slots;
      const int fate = args.fates ? args.fates[t] : 0;
      drop(ids, weights, args, fate > 0 ? 0 : args.beta);
      if (fate >= 0) continue;
      std::fill_n(ids, args.slots, -1);
      std::fill_n(weights, args.slots, 0.0f);
    }
  });
}

}  // namespace tessera::kernels::reference
