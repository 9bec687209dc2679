#include "parallel/experts/fused_experts.h"

#include <algorithm>

#include "base/fail.h"
#include "comm/collectives.h"
#include "fused/open_heap.h"
#include "parallel/experts/exchange.h"
#include "tensor/device_pool.h"
#include "tensor/scope.h"

namespace tessera::parallel {
namespace {

using fused::TaskKind;
using tensor::Tensor;

constexpr int64_t kTile = 64, kBlock = 64;  // rows that travel together, tokens summed together
// Bytes under way between two ranks at once: enough for busy links and receivers.
constexpr int64_t kWindowBytes = int64_t{2} << 20, kLeastWindow = 4;

fused::Manner manner_of(int threads) {
  const int parts = std::min(threads, 4);
  return {threads, parts, parts, threads + 1, kBlock};
}

}  // namespace

void FusedExperts::open(const Tensor& tokens) {
  const std::vector<int>& owner = size_.owner;
  int most = 1;
  for (int r = 0; r < group_.size(); ++r)
    most = std::max(most, static_cast<int>(std::count(owner.begin(), owner.end(), r)));
  const int64_t row = tokens.size(1) * size_of(tokens.dtype());
  const int64_t window = std::max(kLeastWindow, kWindowBytes / (kTile * row));
  layout_ = fused::Layout::dropless(group_.size(), most, size_.tokens * std::min(size_.slots, most),
                                    row, {kTile}, window);
  heap_ = fused::open_heap(group_, fused::heap_of(layout_), tokens.device());
  operator_ = std::make_unique<fused::MoeOperator>(layout_, owner, size_.tokens,
                                                   manner_of(tensor::thread_count()), *heap_);
  actors_ = std::make_unique<fused::Actors>(*operator_);
}

FusedExperts::Load FusedExperts::load(TaskKind kind, int peer) const {
  const int64_t* const counts = operator_->coordinator().counts({.kind = kind, .peer = peer});
  Load sum;
  for (int e = 0; e < layout_.experts; ++e) {
    sum.rows += counts[e];
    sum.tiles += layout_.tiles.count(counts[e]);
  }
  return sum;
}

int64_t FusedExperts::note_transfers(int site) const {
  int64_t rows = load(TaskKind::up, group_.rank()).rows;
  for (int p = 0; p < group_.size(); ++p) {
    if (p == group_.rank()) continue;
    const Load sent = load(TaskKind::dispatch, p), returned = load(TaskKind::up, p);
    group_.ledger().sent({"dispatch", site}, sent.rows * layout_.row_bytes, sent.tiles);
    group_.ledger().sent({"combine", site}, returned.rows * layout_.row_bytes, returned.tiles);
    rows += returned.rows;
  }
  return rows;
}

int64_t FusedExperts::dry_run_transfers(int site) const {
  tensor::Scope scope = tensor::current_scope();
  scope.memory = nullptr;  // rows travel within the heap
  const tensor::BindScope aside(scope);
  const auto message = [](int64_t bytes) {
    return Tensor::empty({bytes}, tensor::DType::u8, tensor::Device::meta);
  };
  std::vector<Tensor> rows;
  for (int p = 0; p < group_.size(); ++p)
    rows.push_back(message(load(TaskKind::dispatch, p).rows * layout_.row_bytes));
  rows = comm::all_to_all(group_, std::move(rows), {"dispatch", site}).wait();
  int64_t bytes = 0;
  for (const Tensor& one : rows) bytes += one.bytes();
  comm::all_to_all(group_, std::move(rows), {"combine", site}).wait();
  return bytes / layout_.row_bytes;
}

void FusedExperts::note_incast(nn::MoeLog& log) const {
  int64_t rows = 0;
  for (int p = 0; p < group_.size(); ++p)
    if (p != group_.rank())
      rows += std::min(layout_.run, load(TaskKind::up, p).rows) +
              std::min(layout_.run, load(TaskKind::dispatch, p).rows);
  const int64_t bound = 2 * (int64_t{group_.size()} - 1) * layout_.run;
  log.expect(rows * layout_.row_bytes, bound * layout_.row_bytes);
}

void FusedExperts::note_work(const Tensor& tokens, const nn::ExpertWeights& weights,
                             int64_t rows) const {
  double touched = 0;
  if (tokens.is_meta()) {
    const auto mine = std::count(size_.owner.begin(), size_.owner.end(), group_.rank());
    touched =
        std::min(tensor::current_scope().assumptions.touched_experts * static_cast<double>(mine),
                 static_cast<double>(rows));
  } else {
    for (int e = 0; e < layout_.experts; ++e) {
      bool any = false;
      for (int p = 0; p < group_.size(); ++p)
        any = any || operator_->coordinator().counts({.kind = TaskKind::up, .peer = p})[e] > 0;
      touched += any ? 1 : 0;
    }
  }
  const Tensor& made = operator_->rows();
  if (rows > 0) ops::count_expert_rows(*weights.routed, made, rows, touched);
  ops::count_combine(made, tokens, weights.shared.down != nullptr);
}

Tensor FusedExperts::run(const nn::MoeCall& call, const Tensor& tokens, const nn::Gate& gate,
                         const nn::ExpertWeights& weights, nn::MoeLog& log) {
  require(!tensor::is_gpu(tokens.device()), ErrorCode::plan,
          "moe=fused computes on CPUs; use moe=bulk, or `device` cpu");
  if (!operator_) open(tokens);
  const bool dry_run = tokens.is_meta();
  const Tensor out =
      dry_run ? operator_->dry_run(tokens, gate, weights) : actors_->run(tokens, gate, weights);
  const int64_t rows = dry_run ? dry_run_transfers(call.site) : note_transfers(call.site);
  if (!dry_run) note_incast(log);
  note_work(tokens, weights, rows);
  const ops::Routing& routing = operator_->routing();
  nn::MoeEvent event{
      .step = call.step.index, .site = call.site, .tokens = tokens.size(0), .assignments = {}};
  event.distinct = distinct_experts(routing.ids, weights.experts());
  log.chose(routing.ids, weights.experts());
  for (int p = 0; p < group_.size(); ++p)
    event.assignments.push_back(load(TaskKind::dispatch, p).rows);
  log.show({call, tokens, gate, weights, routing, operator_->rows()});
  log.add(std::move(event));
  operator_->forget();
  return out;
}

}  // namespace tessera::parallel
