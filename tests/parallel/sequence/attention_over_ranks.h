#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "comm/collectives.h"
#include "comm/simulated/launch.h"
#include "comm/threads/launch.h"
#include "nn/local.h"
#include "nn/random_bank.h"
#include "ops/elementwise.h"
#include "parallel/partition.h"

namespace tessera::parallel::over_ranks {

using tensor::DType;
using tensor::Tensor;

/// An attention of random tokens, split over the ranks of a plan.
struct Problem {
  nn::AttentionSite site;
  Workload work;
  DType dtype = DType::f32;
  tensor::Device device = tensor::Device::cpu;

  nn::Geometry geometry() const {
    nn::Geometry g;
    g.blocks = 1;
    g.attention = {site};
    return g;
  }
  /// Queries, keys and values of all tokens; the same numbers for a token, whatever the view.
  nn::Qkv heads(const nn::TokenView& view) const {
    return {rows(view, site.prefix_queries, site.heads, 1),
            rows(view, site.joint, site.kv_heads, 2), rows(view, site.joint, site.kv_heads, 3)};
  }
  int64_t channels(bool keys = false) const {
    return int64_t{keys ? site.kv_heads : site.heads} * site.head_dim;
  }

 private:
  Tensor rows(const nn::TokenView& view, bool text, int count, uint32_t seed) const {
    const int64_t width = int64_t{count} * site.head_dim;
    nn::Segments tokens = text ? view.prefix : nn::Segments{};
    tokens.insert(tokens.end(), view.body.begin(), view.body.end());
    if (device == tensor::Device::meta)
      return Tensor::empty({nn::token_count(tokens), width}, dtype, device);
    const int64_t each = work.prefix + work.tokens();
    const Tensor all =
        nn::random_bank::normal({int64_t{work.samples} * work.branches * each, width}, seed);
    std::vector<Tensor> parts{all.slice(0, 0, 0)};
    for (const nn::Segment& s : tokens) {
      const int64_t first = s.sequence * each + work.prefix;
      parts.push_back(all.slice(0, first + s.ids.begin, first + s.ids.end));
    }
    return ops::cast(ops::concat_rows(parts), dtype);
  }
};

/// Makes a strategy.
using Make = std::function<std::unique_ptr<nn::Attention>(
    const nn::Geometry&, comm::Communicator& world, const Partition& partition)>;

/// The result of a single rank, in the order of the tokens of `view`.
inline std::vector<float> alone(const Problem& problem, const nn::TokenView& view) {
  const Partition whole(Plan{}, problem.work);
  const nn::Geometry geometry = problem.geometry();
  const nn::TokenView all = whole.view(0);
  const Tensor seen = nn::LocalAttention(geometry).attend(0, all, problem.heads(all));
  std::vector<Tensor> mine{seen.slice(0, 0, 0)};
  const int64_t text = problem.site.prefix_queries ? nn::token_count(all.prefix) : 0;
  const auto add = [&](const nn::Segments& of, const nn::Segments& parts, int64_t first) {
    for (const nn::Range& r : places_of(of, parts))
      mine.push_back(seen.slice(0, first + r.begin, first + r.end));
  };
  if (text > 0) add(all.prefix, view.prefix, 0);
  add(all.body, view.body, text);
  return ops::concat_rows(mine).to_floats();
}

struct Seen {
  std::vector<float> mine, expected;  ///< results of a rank
  std::map<std::string, comm::Ledger::Entry> sent;
};

/// Two calls on every rank with equal results: no state remains from the first call.
inline std::vector<Seen> run(const Problem& problem, const Plan& plan, const Make& make) {
  std::vector<Seen> seen(static_cast<size_t>(plan.world()));
  const bool meta = problem.device == tensor::Device::meta;
  const auto body = [&](comm::Communicator& world) {
    const Partition partition(plan, problem.work);
    const nn::Geometry geometry = problem.geometry();
    const auto attention = make(geometry, world, partition);
    const nn::TokenView view = partition.view(world.rank());
    Seen& mine = seen[static_cast<size_t>(world.rank())];
    for (int step = 0; step < 2; ++step) {
      attention->begin_step({step, 2, true, true});
      const Tensor out = attention->attend(0, view, problem.heads(view));
      if (!meta) mine.mine = out.to_floats();
    }
    attention->finish();
    if (!meta) mine.expected = alone(problem, view);
    for (const auto& [key, entry] : world.ledger().entries()) mine.sent[key.first] = entry;
  };
  if (meta)
    comm::simulated::run(std::vector<tensor::Scope>(seen.size()), std::chrono::seconds(60), body);
  else
    comm::threads::run(plan.world(), std::chrono::seconds(60), body);
  return seen;
}

/// Sites and requests with heads and tokens indivisible by any number of ranks.
inline std::vector<Problem> uneven_problems() {
  const nn::AttentionSite plain{.block = 4, .heads = 10, .kv_heads = 10, .head_dim = 8};
  nn::AttentionSite joint = plain, silent = plain, grouped = plain;
  joint.joint = joint.prefix_queries = true;
  silent.joint = true;
  grouped.heads = 30;
  return {{plain, {2, {1, 5, 7}}},
          {joint, {1, {3, 2, 3}, 2, 1, 5}},
          {silent, {3, {1, 3, 3}, 1, 1, 4}},
          {grouped, {1, {1, 1, 17}}},
          {joint, {1, {1, 1, 3}, 1, 1, 2}}};
}

/// Tokens of a rank at a site, and its queries, over all sequences.
inline std::pair<int64_t, int64_t> token_counts(const Problem& problem, const nn::TokenView& view) {
  const int64_t text = nn::token_count(view.prefix), body = nn::token_count(view.body);
  return {body + (problem.site.joint ? text : 0), body + (problem.site.prefix_queries ? text : 0)};
}

}  // namespace tessera::parallel::over_ranks
