#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "nn/moe/policy.h"

namespace tessera::nn {

/// Each expert takes the tokens of a sequence with its highest scores (expert choice, Zhou et al.
/// 2022): an average of `top_k` experts per token, over the whole sequence on all ranks.
class ExpertChoice final : public ExpertPolicy {
 public:
  ops::Routing choose(const MoeCall& call, const Tensor&, const Tensor& logits,
                      const ops::RoutingOptions& router) const override {
    SequencePeers* peers = call.view.peers;
    const Tensor scores = peers ? peers->gather(logits) : logits;
    std::map<int, std::vector<int64_t>> places;  // places of the tokens of each sequence
    int64_t at = 0;
    for (const Segment& s : peers ? peers->tokens() : call.view.body)
      for (int64_t id = s.ids.begin; id < s.ids.end; ++id) places[s.sequence].push_back(at++);
    const int64_t mine = logits.size(0), experts = logits.size(1),
                  first = peers ? peers->first() : 0;
    const ops::Routing all{Tensor::empty({at, experts}, DType::i32),
                           Tensor::zeros({at, experts}, DType::f32)};
    std::fill_n(all.ids.data<int32_t>(), all.ids.elements(), -1);
    for (auto& [sequence, tokens] : places)
      for (int64_t e = 0; e < experts; ++e) {
        const auto capacity =
            (static_cast<int64_t>(tokens.size()) * router.top_k + experts - 1) / experts;
        std::stable_sort(tokens.begin(), tokens.end());
        std::stable_sort(tokens.begin(), tokens.end(), [&](int64_t a, int64_t b) {
          return scores.row<float>(a)[e] > scores.row<float>(b)[e];
        });
        for (int64_t i = 0; i < capacity; ++i) {
          all.ids.row<int32_t>(tokens[size_t(i)])[e] = static_cast<int32_t>(e);
          all.weights.row<float>(tokens[size_t(i)])[e] =
              1 / (1 + std::exp(-scores.row<float>(tokens[size_t(i)])[e]));
        }
      }
    return {all.ids.slice(0, first, first + mine), all.weights.slice(0, first, first + mine)};
  }
};

}  // namespace tessera::nn
