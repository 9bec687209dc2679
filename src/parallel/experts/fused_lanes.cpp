#include "parallel/experts/fused_lanes.h"

#include <algorithm>

#include "comm/collectives.h"
#include "fused/heap_lane.h"
#include "fused/open_heap.h"
#include "fused/owners.h"
#include "ops/experts.h"
#include "tensor/scope.h"
#include "tensor/uncounted.h"

namespace tessera::parallel {
namespace {

using fused::TaskKind;
using tensor::Tensor;

constexpr int64_t kTile = 64, kBlock = 64;  // rows that travel together, tokens summed together
constexpr int64_t kLeastWindow = 4;         // tiles

fused::OperatorOptions options_of(int threads) {
  const int parts = std::min(threads, 4);
  return {threads, parts, parts, threads + 1, kBlock};
}

}  // namespace

FusedLanes::FusedLanes(comm::Communicator& group, const FusedSize& size, const Tensor& tokens,
                       int lanes, int64_t most, int64_t window)
    : group_(group), owner_(size.owner) {
  const int64_t most_experts = fused::most_owned(owner_, group.size());
  const int64_t row = tokens.size(1) * size_of(tokens.dtype());
  layout_ = fused::Layout::dropless(group.size(), static_cast<int>(most_experts),
                                    most * std::min<int64_t>(size.slots, most_experts), row,
                                    {kTile}, std::max(kLeastWindow, window / (kTile * row)));
  const fused::HeapSize heap = fused::heap_of(layout_, lanes);
  heap_ = fused::open_heap(group, heap, tokens.device());
  std::vector<fused::MoeOperator*> operators;
  for (int lane = 0; lane < lanes; ++lane) {
    parts_.push_back(std::make_unique<fused::HeapLane>(*heap_, heap.begin(lane)));
    operators_.push_back(std::make_unique<fused::MoeOperator>(
        layout_, owner_, most, options_of(tensor::thread_count()), *parts_.back()));
    operators.push_back(operators_.back().get());
  }
  actors_ = std::make_unique<fused::Actors>(std::move(operators));
}

int64_t FusedLanes::usual_window(const FusedSize& size, int ranks, const Tensor& tokens) {
  const int64_t even = (size.tokens * size.slots + ranks - 1) / ranks;
  const int64_t tiles = (2 * even + kTile - 1) / kTile + fused::most_owned(size.owner, ranks);
  return tiles * kTile * tokens.size(1) * size_of(tokens.dtype());
}

FusedLanes::Load FusedLanes::load(int lane, TaskKind kind, int peer) const {
  const int64_t* const counts = at(lane).coordinator().counts({.kind = kind, .peer = peer});
  Load sum;
  for (int e = 0; e < layout_.experts; ++e) {
    sum.rows += counts[e];
    sum.tiles += layout_.tiles.count(counts[e]);
  }
  return sum;
}

int64_t FusedLanes::note_transfers(int lane, int site) const {
  int64_t rows = load(lane, TaskKind::up, group_.rank()).rows;
  for (int p = 0; p < group_.size(); ++p) {
    if (p == group_.rank()) continue;
    const Load outgoing = load(lane, TaskKind::dispatch, p), returned = load(lane, TaskKind::up, p);
    group_.ledger().sent({"dispatch", site}, outgoing.rows * layout_.row_bytes, outgoing.tiles);
    group_.ledger().sent({"combine", site}, returned.rows * layout_.row_bytes, returned.tiles);
    rows += returned.rows;
  }
  return rows;
}

// Rows travel within the heap, so messages in their place are not counted.
comm::Exchange FusedLanes::start_dry_run(int lane, int site) const {
  const tensor::Uncounted aside(tensor::Counts::work);
  std::vector<Tensor> rows;
  std::vector<int64_t> tiles;
  for (int p = 0; p < group_.size(); ++p) {
    const Load outgoing = load(lane, TaskKind::dispatch, p);
    rows.push_back(Tensor::empty({outgoing.rows * layout_.row_bytes}, tensor::DType::u8,
                                 tensor::Device::meta));
    tiles.push_back(outgoing.tiles);
  }
  return comm::all_to_all(group_, std::move(rows), {"dispatch", site}, tiles);
}

int64_t FusedLanes::fetch(comm::Exchange& rows, int site, comm::Exchange& results) const {
  const tensor::Uncounted aside(tensor::Counts::work);
  std::vector<int64_t> tiles;
  std::vector<Tensor> messages = rows.wait(&tiles);
  int64_t bytes = 0;
  for (const Tensor& message : messages) bytes += message.bytes();
  results = comm::all_to_all(group_, std::move(messages), {"combine", site}, tiles);
  return bytes / layout_.row_bytes;
}

void FusedLanes::end_dry_run(comm::Exchange& results) const {
  const tensor::Uncounted aside(tensor::Counts::work);
  (void)results.wait();
}

int64_t FusedLanes::coming(int lane) const {
  int64_t rows = 0;
  for (int p = 0; p < group_.size(); ++p)
    if (p != group_.rank())
      rows += std::min(layout_.run, load(lane, TaskKind::up, p).rows) +
              std::min(layout_.run, load(lane, TaskKind::dispatch, p).rows);
  return rows * layout_.row_bytes;
}

int64_t FusedLanes::coming_bound() const {
  return 2 * count() * (int64_t{group_.size()} - 1) * layout_.run * layout_.row_bytes;
}

int64_t FusedLanes::touched(int first, int last) const {
  int64_t count = 0;
  for (int e = 0; e < layout_.experts; ++e) {
    bool any = false;
    for (int lane = first; lane < last; ++lane)
      for (int p = 0; p < group_.size(); ++p)
        any = any || at(lane).coordinator().counts({.kind = TaskKind::up, .peer = p})[e] > 0;
    count += any ? 1 : 0;
  }
  return count;
}

double FusedLanes::assumed_touched(int64_t rows) const {
  const int64_t own_experts = fused::owned_by(owner_, group_.rank());
  return std::min(
      tensor::current_scope().assumptions.touched_experts * static_cast<double>(own_experts),
      static_cast<double>(rows));
}

void FusedLanes::note_products(const nn::ExpertWeights& weights, const Tensor& like, int64_t rows,
                               double touched_experts) const {
  if (rows > 0) ops::count_expert_rows(*weights.routed, like, rows, touched_experts);
}

}  // namespace tessera::parallel
