#include "kernels/cuda/routing.cuh"
#include "kernels/device_error.h"
#include "kernels/selection.h"
#include "tensor/device_pool.h"
#include "tensor/scope.h"

namespace tessera::kernels::cuda {
namespace {

constexpr int kWarps = 4;
using Count = unsigned long long;  // votes are not negative

constexpr int64_t kSharedBytes = 48 * 1024;

// Token of a warp; -1 after the last.
__device__ inline int64_t warp_token(int64_t tokens) {
  const int64_t t = int64_t{blockIdx.x} * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  return t < tokens ? t : -1;
}

Launch warps_of(const char* kernel, int64_t tokens, int64_t experts, int64_t bytes) {
  if (bytes > kSharedBytes) unsupported(kernel, "experts", experts, "at most 2900");
  const int warps = kWarps * bytes <= kSharedBytes ? kWarps : 1;
  return {.blocks = ceil_div<int64_t>(tokens, warps),
          .threads = warps * kWarp,
          .shared = warps * bytes};
}

__device__ inline int64_t vote_of(VoteOf of, double weight) {
  if (of == VoteOf::presence) return 1;
  const double power = of == VoteOf::weight ? weight : weight * weight * weight * weight;
  return static_cast<int64_t>(power * kVoteUnit + 0.5);
}

constexpr int64_t votes_bytes(const VotesArgs& a) {
  return a.route.logits ? route_bytes(a.route.experts, a.route.groups) : a.router.experts * 8;
}

__global__ void votes_kernel(VotesArgs a, int64_t bytes) {
  const RouteArgs& o = a.router;
  const int64_t t = warp_token(o.tokens);
  const int group = t >= 0 ? a.group_of[t] : -1;
  if (t < 0 || (group < 0 && !a.route.logits)) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = threadIdx.x / kWarp;
  unsigned char* const own = dynamic_shared() + warp * bytes;
  auto* exact = reinterpret_cast<double*>(own);
  const double sum = a.route.logits ? route_by_warp(a.route, t, own, lane)
                                    : exact_scores(o, o.logits + t * o.experts, exact, lane);
  __syncwarp();
  if (group < 0) return;
  if (a.of == VoteOf::rank) {
    for (int e = lane; e < o.experts; e += kWarp) {
      const float score =
          o.sigmoid ? static_cast<float>(exact[e] / sum) : o.logits[t * o.experts + e];
      atomicMax(reinterpret_cast<Count*>(a.votes + group * o.experts + e),
                static_cast<Count>(vote_of_rank(score + (o.bias ? o.bias[e] : 0))));
    }
    return;
  }
  const int32_t* ids = o.ids + t * o.top_k;
  double mass = 1;
  if (o.renormalise) {
    mass = o.sigmoid ? 1e-20 : 0;
    for (int j = 0; j < o.top_k; ++j)
      if (ids[j] >= 0) mass += exact[ids[j]] / sum;
  }
  for (int j = lane; j < o.top_k; j += kWarp) {
    if (ids[j] < 0) continue;
    const double weight = exact[ids[j]] / sum / mass * double(expert_scale(o, ids[j]));
    const auto vote = static_cast<Count>(vote_of(a.of, weight));
    auto* at = reinterpret_cast<Count*>(a.votes + group * o.experts + ids[j]);
    if (a.maximum)
      atomicMax(at, vote);
    else
      atomicAdd(at, vote);
  }
}

// Whether expert e is in the coreset of these votes.
__device__ inline bool elected(const int64_t* votes, int experts, int e, int64_t count,
                               int64_t bar) {
  const int64_t own_votes = votes[e];
  int better = 0;
  for (int f = 0; count > 0 && f < experts; ++f)
    better += votes[f] > own_votes || (votes[f] == own_votes && f < e);
  return better < count || own_votes >= bar;
}

__global__ void coresets_kernel(CoresetsArgs a) {
  const int experts = static_cast<int>(a.experts);
  for (int64_t i = first_piece(); i < a.groups * experts; i += piece_step()) {
    const int64_t e = i % experts;
    a.cores[i] = elected(a.votes + i - e, experts, static_cast<int>(e), a.count, a.bar);
  }
}

// Multiplier of the chosen scores.
__device__ inline float factor_of(const InsideArgs& a, const float* score, const uint8_t* core,
                                  const int32_t* vanilla, float chosen_mass, int lane) {
  using Weights = InsideRule::Weights;
  const RouteArgs& o = a.router;
  const Weights weights = a.rule.weights;
  float mass = o.sigmoid ? 1e-20f : 0;
  for (int j = 0; j < o.top_k; ++j)
    if (vanilla[j] >= 0) mass += score[vanilla[j]];
  if (o.renormalise) return o.scale / (weights == Weights::vanilla ? mass : chosen_mass);
  if (weights == Weights::vanilla || chosen_mass <= 0) return o.scale;
  if (weights == Weights::mass) return o.scale * (mass / chosen_mass);
  if (o.sigmoid) return o.scale;
  float inside = 0;
  for (int e = lane; e < o.experts; e += kWarp)
    if (!core || core[e]) inside += score[e];
  return o.scale / sum_over_lanes(inside, kWarp);
}

// Ranks, group values and marks of a warp, and the coreset that it shares.
constexpr int64_t inside_bytes(int64_t experts, int64_t groups, bool elects) {
  return ceil_div<int64_t>(experts * (elects ? 5 : 4) + groups * 8, 16) * 16;
}

/// By all threads of a block: the coreset of a warp's group, made once for warps of a group.
__device__ inline const uint8_t* elect(const InsideArgs& a, int64_t bytes) {
  const RouteArgs& o = a.router;
  const int experts = static_cast<int>(o.experts);
  const int own = static_cast<int>(threadIdx.x) / kWarp, warps = blockDim.x / kWarp;
  const int64_t first = int64_t{blockIdx.x} * warps;
  const auto group_of = [&](int w) { return first + w < o.tokens ? a.group_of[first + w] : -1; };
  const auto core_of = [&](int w) {
    return dynamic_shared() + w * bytes + experts * 4 + o.groups * 8;
  };
  const uint8_t* core = nullptr;
  for (int w = 0; w < warps; ++w) {
    const int group = group_of(w);
    int before = 0;
    while (before < w && group_of(before) != group) ++before;
    if (w == own && group >= 0) core = core_of(before);
    if (group < 0 || before < w) continue;
    for (int e = threadIdx.x; e < experts; e += blockDim.x)
      core_of(w)[e] = elected(a.ballot.votes + int64_t{group} * experts, experts, e, a.ballot.count,
                              a.ballot.bar);
  }
  __syncthreads();
  return core;
}

__global__ void inside_kernel(InsideArgs a, int64_t bytes) {
  using Groups = InsideRule::Groups;
  const RouteArgs& o = a.router;
  const uint8_t* core = a.ballot.votes ? elect(a, bytes) : nullptr;
  const int64_t t = warp_token(o.tokens);
  if (t < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = threadIdx.x / kWarp;
  const int experts = static_cast<int>(o.experts), group = a.group_of[t];
  if (a.cores && group >= 0) core = a.cores + int64_t{group} * experts;
  bool full = true;
  for (int e = lane; e < experts; e += kWarp) full = full && (!core || core[e]);
  full = __ballot_sync(kAllLanes, full) == kAllLanes;
  const int32_t* vanilla = o.ids + t * o.top_k;
  int32_t* ids = a.ids + t * a.slots;
  float* weights = a.weights + t * a.slots;
  if (group < 0 || (full && a.rule.full_is_free)) {
    for (int j = lane; j < a.slots; j += kWarp) {
      ids[j] = j < o.top_k ? vanilla[j] : -1;
      weights[j] = j < o.top_k ? o.weights[t * o.top_k + j] : 0;
    }
    return;
  }
  auto* rank = reinterpret_cast<float*>(dynamic_shared() + warp * bytes);
  float* worth = rank + experts;
  auto* open = reinterpret_cast<int*>(worth + o.groups);
  const float *logits = o.logits + t * experts, *score = o.scores + t * experts;
  for (int e = lane; e < experts; e += kWarp)
    rank[e] = (o.sigmoid ? score[e] : logits[e]) + (o.bias ? o.bias[e] : 0);
  __syncwarp();
  const bool limited = o.top_groups < o.groups && a.rule.groups != Groups::none;
  if (limited && a.rule.groups == Groups::vanilla) close_groups(o, rank, worth, open, lane);
  for (int e = lane; e < experts; e += kWarp)
    if (core && !core[e]) rank[e] = -INFINITY;
  __syncwarp();
  if (limited && a.rule.groups == Groups::masked) close_groups(o, rank, worth, open, lane);
  const float chosen_mass =
      take_best(rank, score, experts, a.rule.take, lane, o.sigmoid ? 1e-20f : 0, ids, weights);
  const float factor = factor_of(a, score, core, vanilla, chosen_mass, lane);
  for (int j = lane; j < a.slots; j += kWarp) {
    if (j >= a.rule.take) ids[j] = -1;
    weights[j] = ids[j] < 0 ? 0 : weights[j] * factor * expert_scale(o, ids[j]);
  }
}

// Each thread sums a row in the order of columns.
__global__ void magnitudes_kernel(MagnitudesArgs a) {
  for (int64_t t = first_piece(); t < a.rows; t += piece_step()) {
    float sum = 0;
    for (int64_t c = 0; c < a.columns; ++c) {
      float v[1];
      load<1>(a.x, a.dtype, t * a.stride + c, v);
      sum += fabsf(v[0]);
    }
    a.sums[t] = sum;
  }
}

__global__ void fates_kernel(FatesArgs a) {
  for (int64_t t = first_piece(); t < a.tokens; t += piece_step()) {
    const int group = a.group_of[t];
    const float importance = a.importance[t];
    int64_t count = 0, smaller = 0, larger = 0;  // counts in the group; of equals, earlier ones
    for (int64_t u = 0; group >= 0 && u < a.tokens; ++u) {
      if (a.group_of[u] != group) continue;
      const float other = a.importance[u];
      const bool before = other == importance && u < t;
      ++count;
      smaller += other < importance || before;
      larger += other > importance || before;
    }
    const double n = static_cast<double>(count);
    const bool high = static_cast<double>(larger) < floor(a.high * n);
    const bool low = static_cast<double>(smaller) < floor(a.low * n);
    a.fates[t] = static_cast<int8_t>(high ? 1 : low ? -1 : 0);
  }
}

// Each thread handles a token and sorts its few choices by insertion.
__global__ void tail_kernel(TailArgs a) {
  for (int64_t t = first_piece(); t < a.tokens; t += piece_step()) {
    if (a.group_of[t] < 0) continue;
    int32_t* ids = a.ids + t * a.slots;
    float* weights = a.weights + t * a.slots;
    const int fate = a.fates ? a.fates[t] : 0;
    int count = 0;
    double total = 0;
    for (int j = 0; j < a.slots; ++j) {
      const int32_t id = ids[j];
      const float weight = weights[j];
      if (id < 0) continue;
      int at = count++;
      for (;
           at > 0 && (weights[at - 1] < weight || (weights[at - 1] == weight && ids[at - 1] > id));
           --at) {
        ids[at] = ids[at - 1];
        weights[at] = weights[at - 1];
      }
      ids[at] = id;
      weights[at] = weight;
    }
    for (int j = 0; j < count; ++j) total += static_cast<double>(weights[j]);
    const double most = (fate > 0 ? 0 : a.beta) * total;
    double tail = 0;
    int keep = count;
    while (keep > 1 && tail + static_cast<double>(weights[keep - 1]) < most)
      tail += static_cast<double>(weights[--keep]);
    const float scale =
        a.renormalise ? static_cast<float>(static_cast<double>(a.full) / (total - tail)) : 1.0f;
    if (fate < 0) keep = 0;
    for (int j = 0; j < a.slots; ++j) {
      weights[j] = j < keep ? weights[j] * scale : 0;
      if (j >= keep) ids[j] = -1;
    }
  }
}

}  // namespace

void expert_votes(const VotesArgs& args) {
  const int64_t bytes = votes_bytes(args), count = args.groups * args.router.experts;
  if (count > 0)
    tensor::device_pool()->runtime().zero(args.votes, count * int64_t{sizeof(int64_t)},
                                          tensor::current_scope().stream);
  launch("expert_votes", votes_kernel,
         warps_of("expert_votes", args.router.tokens, args.router.experts, bytes), args, bytes);
}

void coresets(const CoresetsArgs& args) {
  launch("coresets", coresets_kernel, spread(args.groups * args.experts), args);
}

void choose_inside(const InsideArgs& args) {
  const int64_t bytes = inside_bytes(args.router.experts, args.router.groups, args.ballot.votes);
  launch("choose_inside", inside_kernel,
         warps_of("choose_inside", args.router.tokens, args.router.experts, bytes), args, bytes);
}

void magnitudes(const MagnitudesArgs& args) {
  launch("magnitudes", magnitudes_kernel, spread(args.rows), args);
}

void token_fates(const FatesArgs& args) {
  launch("token_fates", fates_kernel, spread(args.tokens), args);
}

void drop_tail(const TailArgs& args) {
  launch("drop_tail", tail_kernel, spread(args.tokens), args);
}

}  // namespace tessera::kernels::cuda
