#include "parallel/tensor/narrow_experts.h"

#include <numeric>

#include "base/fail.h"
#include "ops/elementwise.h"

namespace tessera::parallel {

using tensor::Tensor;

std::vector<std::string> tensor_problems(const Plan& plan, const nn::Geometry& geometry) {
  std::vector<std::string> problems;
  if (plan.tensor == 1) return problems;
  if (geometry.shard.count > 1) return problems;  // for weights already split
  if (geometry.norm_over_heads)
    problems.push_back(fmt::format(
        "tensor={}: the norms of this model's queries and keys span all heads; leave it out",
        plan.tensor));
  for (const nn::AttentionSite& site : geometry.attention) {
    const int shared = std::gcd(site.heads, site.kv_heads);
    if (shared % plan.tensor == 0) continue;
    std::vector<int> valid;
    for (int d = 1; d <= shared; ++d)
      if (shared % d == 0) valid.push_back(d);
    problems.push_back(
        fmt::format("tensor={} does not divide {} heads and {} of keys and values; valid are: {}",
                    plan.tensor, site.heads, site.kv_heads, fmt::join(valid, ", ")));
    break;
  }
  return problems;
}

Tensor NarrowExperts::run(const nn::MoeCall& call, const Tensor& tokens, const nn::Gate& gate,
                          const nn::ExpertWeights& weights, nn::MoeLog& log) {
  const ops::Routing routing = gate(tokens);
  log.add(call, routing.ids, weights.experts());
  const Tensor wide = ops::cast(tokens, tensor::DType::f32);
  const Tensor rows = ops::expert_rows(wide, routing, *weights.routed);
  log.show({call, tokens, gate, weights, routing, rows});
  const int64_t k = routing.ids.size(1);
  const auto part = [&](nn::Range range) {
    return ops::combine_rows(rows.slice(0, range.begin * k, range.end * k),
                             routing.weights.slice(0, range.begin, range.end),
                             weights.shared_rows(wide.slice(0, range.begin, range.end)));
  };
  return reduce_.sum(tokens.size(0), part,
                     [&](const Tensor& sum, nn::Range) { return ops::cast(sum, tokens.dtype()); });
}

}  // namespace tessera::parallel
