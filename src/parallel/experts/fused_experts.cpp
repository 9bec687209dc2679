#include "parallel/experts/fused_experts.h"

#include <algorithm>

#include "base/fail.h"
#include "ops/experts.h"
#include "parallel/experts/exchange.h"
#include "tensor/device_pool.h"
#include "tensor/uncounted.h"

namespace tessera::parallel {
namespace {

using fused::TaskKind;
using tensor::DType;
using tensor::Tensor;

// Bytes under way between two ranks at once: enough for busy links and receivers.
constexpr int64_t kWindowBytes = int64_t{2} << 20;
// Rows of a block for an expert: fewer make part tiles, and read weights for little.
constexpr int64_t kBlockRows = 128;
constexpr int64_t kMostBlocks = 4;

}  // namespace

// By the agreement of the ranks alone, so all choose alike.
int FusedExperts::blocks_for(const nn::Gate& gate) const {
  if (size_.on_gpu || !gate.by_token()) return 1;
  const auto rows = size_.tokens * size_.slots / static_cast<int64_t>(size_.owner.size());
  return static_cast<int>(std::clamp<int64_t>(rows / kBlockRows, 1, kMostBlocks));
}

// All threads share the gate, and then the operator.
FusedExperts::LayerOutcome FusedExperts::whole(const Tensor& tokens, const nn::Gate& gate,
                                               const nn::ExpertWeights& weights) {
  fused::MoeOperator& op = lanes_->at(0);
  const ops::Routing routing =
      ops::host_routing(gate(tokens), static_cast<int64_t>(size_.owner.size()));
  const auto choose = [&routing](const Tensor&) {
    return ops::Routing{routing.ids, routing.weights};
  };
  LayerOutcome outcome;
  if (tokens.is_meta()) {
    outcome.result = op.dry_run(tokens, choose, weights, {});
  } else {
    op.begin(tokens, choose, weights, {});
    lanes_->drive([&] { return op.done(); });
    outcome.result = op.result();
  }
  outcome.routing = op.routing();
  outcome.rows = op.rows();
  return outcome;
}

// Gates may run at once, in any order: room for the logits of all is counted instead of theirs.
FusedExperts::LayerOutcome FusedExperts::in_blocks(const Tensor& tokens, const nn::Gate& gate,
                                                   const nn::ExpertWeights& weights) {
  const int64_t n = tokens.size(0), slots = gate.router().options.top_k;
  const auto experts = static_cast<int64_t>(size_.owner.size());
  LayerOutcome outcome;
  outcome.routing = {Tensor::empty({n, slots}, DType::i32), Tensor::empty({n, slots}, DType::f32)};
  outcome.rows = Tensor::empty({n * slots, tokens.size(1)}, tokens.dtype(), tokens.device());
  outcome.result = Tensor::empty(tokens.shape(), tokens.dtype(), tokens.device());
  const Tensor room = Tensor::empty({n, experts}, DType::f32, tokens.device());
  const int blocks = lanes_->count();
  for (int b = 0; b < blocks; ++b) {
    const nn::Range run = nn::split({0, n}, blocks, b);
    const ops::Routing to{outcome.routing.ids.slice(0, run.begin, run.end),
                          outcome.routing.weights.slice(0, run.begin, run.end)};
    const auto choose = [&tokens, &gate, run, to, experts](const Tensor&) {
      const tensor::Uncounted aside(tensor::Counts::work);
      const ops::Routing routing = ops::host_routing(gate.part(tokens, run), experts);
      tensor::copy_into(to.ids, routing.ids);
      tensor::copy_into(to.weights, routing.weights);
      return ops::Routing{to.ids, to.weights};
    };
    const fused::Destination into{outcome.rows.slice(0, run.begin * slots, run.end * slots),
                                  outcome.result.slice(0, run.begin, run.end)};
    const Tensor part = tokens.slice(0, run.begin, run.end);
    if (tokens.is_meta())
      (void)lanes_->at(b).dry_run(part, choose, weights, into);
    else
      lanes_->at(b).begin(part, choose, weights, into);
  }
  if (!tokens.is_meta())
    lanes_->drive([&] {
      for (int b = 0; b < blocks; ++b)
        if (!lanes_->at(b).done()) return false;
      return true;
    });
  return outcome;
}

int64_t FusedExperts::exchange(int site, bool dry_run) const {
  int64_t rows = 0;
  for (int lane = 0; lane < lanes_->count(); ++lane) {
    if (!dry_run) {
      rows += lanes_->note_transfers(lane, site);
      continue;
    }
    comm::Exchange dispatch = lanes_->start_dry_run(lane, site), back;
    rows += lanes_->fetch(dispatch, site, back);
    lanes_->end_dry_run(back);
  }
  return rows;
}

Tensor FusedExperts::run(const nn::MoeCall& call, const Tensor& tokens, const nn::Gate& gate,
                         const nn::ExpertWeights& weights, nn::MoeLog& log) {
  if (tensor::is_gpu(tokens.device())) return launched(call, tokens, gate, weights, log);
  if (!lanes_) {
    const int blocks = blocks_ > 0 ? blocks_ : blocks_for(gate);
    const int64_t window = size_.on_gpu ? fused::kDeviceWindow : kWindowBytes;
    lanes_ = std::make_unique<FusedLanes>(group_, size_, tokens, blocks,
                                          (size_.tokens + blocks - 1) / blocks, window / blocks);
  }
  const int blocks = lanes_->count();
  require(blocks == 1 || gate.by_token(), ErrorCode::usage,
          "fused experts: a policy chooses over all tokens after one that chose by token");
  const LayerOutcome outcome =
      blocks > 1 ? in_blocks(tokens, gate, weights) : whole(tokens, gate, weights);
  const bool dry_run = tokens.is_meta();
  const int64_t rows = exchange(call.site, dry_run);
  lanes_->note_products(
      weights, outcome.rows, rows,
      dry_run ? lanes_->assumed_touched(rows) : static_cast<double>(lanes_->touched(0, blocks)));
  ops::count_combine(outcome.rows, tokens, weights.shared.down != nullptr);
  nn::MoeEvent event{
      .step = call.step.index, .site = call.site, .tokens = tokens.size(0), .assignments = {}};
  event.distinct = distinct_experts(outcome.routing.ids, weights.experts());
  log.chose(outcome.routing.ids, weights.experts());
  event.assignments.resize(static_cast<size_t>(group_.size()));
  int64_t coming = 0;
  for (int lane = 0; lane < blocks; ++lane) {
    for (int p = 0; p < group_.size(); ++p)
      event.assignments[static_cast<size_t>(p)] += lanes_->load(lane, TaskKind::dispatch, p).rows;
    if (!dry_run) coming += lanes_->coming(lane);
  }
  if (!dry_run) log.expect(coming, lanes_->coming_bound());
  log.show({call, tokens, gate, weights, outcome.routing, outcome.rows});
  log.add(std::move(event));
  for (int lane = 0; lane < blocks; ++lane) lanes_->at(lane).forget();
  return outcome.result;
}

// Observers alone need the rows; they see zeros where a token has no expert.
Tensor FusedExperts::launched(const nn::MoeCall& call, const Tensor& tokens, const nn::Gate& gate,
                              const nn::ExpertWeights& weights, nn::MoeLog& log) {
  if (!launches_) launches_ = std::make_unique<SharedLaunches>(group_, size_);
  const ops::Routing routing = gate(tokens);
  const Tensor shared = weights.shared_rows(tokens);
  const Tensor result = Tensor::empty(tokens.shape(), tokens.dtype(), tokens.device());
  const tensor::Shape row_shape{routing.ids.elements(), tokens.size(1)};
  const Tensor rows =
      log.watched() ? Tensor::zeros(row_shape, tokens.dtype(), tokens.device()) : Tensor();
  launches_->run(call.site, {tokens, routing.ids, routing.weights, shared, rows, result, weights});
  const Tensor ids = routing.ids.to(tensor::Device::cpu);
  const SharedLaunches::Count count = launches_->count(call.site, ids, weights, tokens);
  {
    const tensor::Uncounted aside(tensor::Counts::work);
    const Tensor like = Tensor::empty(row_shape, tokens.dtype(), tensor::Device::meta);
    ops::count_combine(like, tokens, shared.defined());
  }
  log.expect(count.coming, launches_->coming_bound(tokens));
  log.chose(ids, weights.experts());
  log.show({call, tokens, gate, weights, routing, rows});
  log.add({.step = call.step.index,
           .site = call.site,
           .tokens = tokens.size(0),
           .distinct = distinct_experts(ids, weights.experts()),
           .assignments = count.assignments});
  return result;
}

}  // namespace tessera::parallel
