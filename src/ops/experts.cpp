#include "ops/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/fail.h"
#include "kernels/experts.h"
#include "kernels/table.h"
#include "tensor/scope.h"

namespace tessera::ops {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// ---- routing
// --------------------------------------------------------------------------------------

void check_route(const Tensor& logits, const RoutingOptions& o) {
  require(logits.rank() == 2 && logits.dtype() == DType::f32, ErrorCode::usage,
          "route: logits {} of {}; expected f32 [tokens, experts]", logits.shape().str(),
          tensor::name_of(logits.dtype()));
  const int64_t experts = logits.size(1);
  require(o.top_k >= 1 && o.top_k <= experts, ErrorCode::usage,
          "route: top_k {} of {} experts; choose 1 to {}", o.top_k, experts, experts);
  require(o.groups >= 1 && experts % o.groups == 0 && o.top_groups >= 1 && o.top_groups <= o.groups,
          ErrorCode::usage,
          "route: {} of {} groups over {} experts; groups must divide the experts", o.top_groups,
          o.groups, experts);
  if (!o.bias.defined()) return;
  require(o.score == RoutingOptions::Score::sigmoid, ErrorCode::usage,
          "route: a ranking bias goes with sigmoid scores only; leave it out");
  require(o.bias.rank() == 1 && o.bias.size(0) == experts && o.bias.dtype() == DType::f32,
          ErrorCode::usage, "route: bias {}; expected f32 [{}]", o.bias.shape().str(), experts);
}

void softmax(const float* logits, int64_t n, float* score) {
  const float largest = *std::max_element(logits, logits + n);
  float sum = 0;
  for (int64_t e = 0; e < n; ++e) sum += score[e] = std::exp(logits[e] - largest);
  for (int64_t e = 0; e < n; ++e) score[e] /= sum;
}

// Index of the largest value that is not -inf, the lowest index of equals; -1 if there is none.
int64_t best_of(const float* values, int64_t n) {
  int64_t best = -1;
  float value = kLowest;
  for (int64_t i = 0; i < n; ++i)
    if (values[i] > value) value = values[best = i];
  return best;
}

// Ranks outside the best groups become -inf; a group is worth the sum of its two best.
void limit_groups(std::vector<float>& rank, const RoutingOptions& o) {
  const size_t size = rank.size() / static_cast<size_t>(o.groups);
  std::vector<float> worth(static_cast<size_t>(o.groups));
  for (size_t g = 0; g < worth.size(); ++g) {
    float first = kLowest, second = kLowest;
    for (size_t i = g * size; i < (g + 1) * size; ++i) {
      if (rank[i] > first) {
        second = first;
        first = rank[i];
      } else if (rank[i] > second) {
        second = rank[i];
      }
    }
    worth[g] = size > 1 ? first + second : first;
  }
  std::vector<bool> open(worth.size());
  for (int i = 0; i < o.top_groups; ++i) {
    const int64_t g = best_of(worth.data(), o.groups);
    if (g < 0) break;
    open[static_cast<size_t>(g)] = true;
    worth[static_cast<size_t>(g)] = kLowest;
  }
  for (size_t i = 0; i < rank.size(); ++i)
    if (!open[i / size]) rank[i] = kLowest;
}

struct TokenRouter {
  const RoutingOptions& options;
  std::vector<float> score, rank;

  void operator()(const float* logits, int32_t* ids, float* weights) {
    const int64_t n = static_cast<int64_t>(score.size());
    const bool sigmoid = options.score == RoutingOptions::Score::sigmoid;
    if (sigmoid) {
      for (int64_t e = 0; e < n; ++e) at(score, e) = 1 / (1 + std::exp(-logits[e]));
      rank = score;
    } else {
      softmax(logits, n, score.data());
      for (int64_t e = 0; e < n; ++e) at(rank, e) = logits[e];
    }
    if (options.bias.defined())
      for (int64_t e = 0; e < n; ++e) at(rank, e) += options.bias.data<float>()[e];
    if (options.top_groups < options.groups) limit_groups(rank, options);
    float sum = sigmoid ? 1e-20f : 0;
    for (int j = 0; j < options.top_k; ++j) {
      const int64_t e = best_of(rank.data(), n);
      ids[j] = static_cast<int32_t>(e);
      weights[j] = e < 0 ? 0 : at(score, e);
      sum += weights[j];
      if (e >= 0) at(rank, e) = kLowest;
    }
    const float scale = options.renormalise ? options.scale / sum : options.scale;
    for (int j = 0; j < options.top_k; ++j) weights[j] = ids[j] < 0 ? 0 : weights[j] * scale;
  }

 private:
  static float& at(std::vector<float>& v, int64_t i) { return v[static_cast<size_t>(i)]; }
};

// ---- experts
// --------------------------------------------------------------------------------------

void check_experts(const Tensor& x, const Routing& routing,
                   const std::vector<ExpertWeights>& bank) {
  require(x.rank() == 2 && tensor::is_float(x.dtype()), ErrorCode::usage,
          "experts: x {} of {}; expected floats [tokens, hidden]", x.shape().str(),
          tensor::name_of(x.dtype()));
  require(routing.ids.defined() && routing.ids.rank() == 2 && routing.ids.size(0) == x.size(0) &&
              routing.ids.dtype() == DType::i32 && routing.ids.dense(),
          ErrorCode::usage, "experts: routing of {} for x {}; expected dense i32 ids [{}, k]",
          routing.ids.defined() ? routing.ids.shape().str() : "nothing", x.shape().str(),
          x.size(0));
  require(routing.ids.elements() <= std::numeric_limits<int32_t>::max(), ErrorCode::usage,
          "experts: {} rows; at most 2^31 - 1", routing.ids.elements());
  require(!bank.empty(), ErrorCode::usage, "experts: the bank is empty; give at least one expert");
  for (size_t e = 0; e < bank.size(); ++e) {
    const ExpertWeights& w = bank[e];
    require(w.gate_up && w.down, ErrorCode::usage, "experts: expert {} has no weights", e);
    require(w.gate_up->paired && !w.down->paired && w.gate_up->k == x.size(1) &&
                w.down->n == x.size(1) && w.down->k == w.gate_up->n &&
                w.gate_up->n == bank[0].gate_up->n && w.down->dtype == w.gate_up->dtype &&
                w.down->dtype == bank[0].down->dtype && w.gate_up->isa == bank[0].gate_up->isa &&
                w.down->isa == bank[0].down->isa,
            ErrorCode::usage,
            "experts: expert {} has gate_up [{}, {}] and down [{}, {}]; expected a paired [{}, {}] "
            "and a plain [{}, {}], packed alike in all experts",
            e, w.gate_up->n, w.gate_up->k, w.down->n, w.down->k, bank[0].gate_up->n, x.size(1),
            x.size(1), bank[0].gate_up->n);
  }
}

void check_ids(const Tensor& ids, size_t experts) {
  const int32_t* id = ids.data<int32_t>();
  for (int64_t i = 0; i < ids.elements(); ++i)
    require(id[i] >= -1 && id[i] < static_cast<int64_t>(experts), ErrorCode::usage,
            "experts: token {} goes to expert {}; there are {}", i / ids.size(1), id[i], experts);
}

// Experts with at least one row; on meta the share that the scope assumes.
double touched_experts(const Tensor& ids, size_t experts) {
  if (ids.is_meta()) {
    const double share = tensor::current_scope().assumptions.touched_experts;
    return std::min(std::ceil(share * static_cast<double>(experts)),
                    static_cast<double>(ids.elements()));
  }
  std::vector<bool> touched(experts);
  const int32_t* id = ids.data<int32_t>();
  for (int64_t i = 0; i < ids.elements(); ++i)
    if (id[i] >= 0) touched[static_cast<size_t>(id[i])] = true;
  return static_cast<double>(std::count(touched.begin(), touched.end(), true));
}

void count_experts(const Tensor& x, const Tensor& ids, const std::vector<ExpertWeights>& bank) {
  tensor::Meter* meter = tensor::current_scope().meter.get();
  if (!meter) return;
  const double rows = static_cast<double>(ids.elements());
  const ExpertWeights& w = bank[0];
  const double flops =
      6 * rows * static_cast<double>(w.gate_up->n) * static_cast<double>(w.gate_up->k);
  const double weights = touched_experts(ids, bank.size()) *
                         static_cast<double>(w.gate_up->data.bytes() + w.down->data.bytes());
  const double row = static_cast<double>(x.size(1) * size_of(x.dtype()));
  meter->add("experts", flops, weights + static_cast<double>(x.bytes()) + rows * row);
}

}  // namespace

Routing route(const Tensor& logits, const RoutingOptions& options) {
  check_route(logits, options);
  const int64_t tokens = logits.size(0), experts = logits.size(1), k = options.top_k;
  Routing routing{Tensor::empty({tokens, k}, DType::i32, logits.device()),
                  Tensor::empty({tokens, k}, DType::f32, logits.device())};
  if (tensor::Meter* meter = tensor::current_scope().meter.get())
    meter->add("route", 4 * static_cast<double>(logits.elements()),
               static_cast<double>(logits.bytes() + tokens * k * 8));
  if (logits.is_meta()) return routing;
  tensor::parallel_for(tokens, 64, [&](int64_t begin, int64_t end) {
    const auto size = static_cast<size_t>(experts);
    TokenRouter router{options, std::vector<float>(size), std::vector<float>(size)};
    for (int64_t t = begin; t < end; ++t)
      router(logits.row<float>(t), routing.ids.row<int32_t>(t), routing.weights.row<float>(t));
  });
  return routing;
}

Tensor expert_rows(const Tensor& x, const Routing& routing,
                   const std::vector<ExpertWeights>& bank) {
  check_experts(x, routing, bank);
  const Tensor& ids = routing.ids;
  Tensor rows = Tensor::empty({ids.elements(), x.size(1)}, x.dtype(), x.device());
  if (!x.is_meta()) check_ids(ids, bank.size());
  count_experts(x, ids, bank);
  if (rows.is_meta() || rows.elements() == 0) return rows;
  std::vector<kernels::ExpertView> views;
  views.reserve(bank.size());
  for (const ExpertWeights& w : bank) views.push_back({w.gate_up.get(), w.down.get()});
  kernels::cpu_table(bank[0].down->isa)
      .experts({.x = x.raw(),
                .dtype = x.dtype(),
                .x_stride = x.stride(0),
                .tokens = x.size(0),
                .slots = ids.size(1),
                .hidden = x.size(1),
                .inner = bank[0].gate_up->n,
                .ids = ids.data<int32_t>(),
                .bank = views.data(),
                .experts = static_cast<int64_t>(views.size()),
                .rows = rows.raw()});
  return rows;
}

Tensor combine_rows(const Tensor& rows, const Tensor& weights, const Tensor& shared) {
  require(
      rows.rank() == 2 && tensor::is_float(rows.dtype()) && weights.rank() == 2 &&
          weights.dtype() == DType::f32 && weights.dense() && rows.size(0) == weights.elements(),
      ErrorCode::usage,
      "combine_rows: rows {} of {} and weights {} of {}; expected float [tokens * k, hidden] and "
      "dense f32 [tokens, k]",
      rows.shape().str(), tensor::name_of(rows.dtype()), weights.shape().str(),
      tensor::name_of(weights.dtype()));
  const int64_t tokens = weights.size(0), slots = weights.size(1), hidden = rows.size(1);
  require(!shared.defined() || (shared.rank() == 2 && shared.size(0) == tokens &&
                                shared.size(1) == hidden && shared.dtype() == rows.dtype()),
          ErrorCode::usage, "combine_rows: shared {} of {}; expected {} [{}, {}]",
          shared.defined() ? shared.shape().str() : "",
          shared.defined() ? tensor::name_of(shared.dtype()) : "", tensor::name_of(rows.dtype()),
          tokens, hidden);
  Tensor y = Tensor::empty({tokens, hidden}, rows.dtype(), rows.device());
  if (tensor::Meter* meter = tensor::current_scope().meter.get())
    meter->add("combine", 2 * static_cast<double>(rows.elements()),
               static_cast<double>(rows.bytes() + y.bytes() * (shared.defined() ? 2 : 1)));
  if (y.is_meta() || y.elements() == 0) return y;
  kernels::cpu_table().combine({.rows = rows.raw(),
                                .dtype = rows.dtype(),
                                .row_stride = rows.stride(0),
                                .tokens = tokens,
                                .slots = slots,
                                .hidden = hidden,
                                .weights = weights.data<float>(),
                                .shared = shared.defined() ? shared.raw() : nullptr,
                                .shared_stride = shared.defined() ? shared.stride(0) : 0,
                                .y = y.raw()});
  return y;
}

Tensor experts(const Tensor& x, const Routing& routing, const std::vector<ExpertWeights>& bank,
               const Tensor& shared) {
  require(routing.weights.defined() && routing.ids.defined() &&
              routing.weights.shape() == routing.ids.shape(),
          ErrorCode::usage, "experts: the weights of the routing do not have the shape of its ids");
  return combine_rows(expert_rows(x, routing, bank), routing.weights, shared);
}

}  // namespace tessera::ops
