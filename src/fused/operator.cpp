#include "fused/operator.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "fused/owners.h"
#include "kernels/table.h"

namespace tessera::fused {
namespace {

using nn::DType;
using nn::Tensor;

Shape shape_of(const Layout& layout, int rank, const std::vector<int>& owner, int64_t tokens,
               const OperatorOptions& options) {
  for (const int64_t setting : {int64_t{options.processors}, int64_t{options.up_parts},
                                int64_t{options.down_parts}, int64_t{options.slots}, options.block})
    require(setting >= 1, ErrorCode::usage,
            "fused experts: {} processors, parts, slots or tokens of a block; expected 1 or more",
            setting);
  return {layout,
          rank,
          options.processors,
          options.up_parts,
          options.down_parts,
          options.slots,
          static_cast<int>((tokens + options.block - 1) / options.block),
          static_cast<int>(owned_by(owner, rank))};
}

std::byte* bytes_of(const Tensor& tensor) { return static_cast<std::byte*>(tensor.raw()); }

std::byte* zeroed(kernels::Scratch& scratch, int64_t bytes) {
  std::byte* const memory = scratch.at_least(bytes);
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return memory;
}

// The index of each expert within its rank.
std::vector<int> places_of(const std::vector<int>& owner, const Layout& layout) {
  std::vector<int> counts(static_cast<size_t>(layout.ranks)), places;
  for (const int rank : owner) {
    require(rank >= 0 && rank < layout.ranks, ErrorCode::usage,
            "fused experts: an expert belongs to rank {} of {}", rank, layout.ranks);
    places.push_back(counts[static_cast<size_t>(rank)]++);
    require(places.back() < layout.experts, ErrorCode::usage,
            "fused experts: rank {} has more than the {} experts of the layout", rank,
            layout.experts);
  }
  return places;
}

}  // namespace

MoeOperator::MoeOperator(const Layout& layout, std::vector<int> owner, int64_t tokens,
                         const OperatorOptions& options, SymmetricHeap& heap)
    : layout_(layout),
      rank_(heap.rank()),
      owner_(std::move(owner)),
      place_(places_of(owner_, layout)),
      most_tokens_(tokens),
      slot_rows_(shape_of(layout, rank_, owner_, tokens, options).slot_rows()),
      options_(options),
      heap_(heap),
      buffer_(heap.memory()),
      dispatcher_(layout, rank_),
      coordinator_(
          shape_of(layout, rank_, owner_, tokens, options), buffer_,
          zeroed(board_, Coordinator::bytes(shape_of(layout, rank_, owner_, tokens, options)))) {}

void MoeOperator::check(const Tensor& tokens, const nn::ExpertWeights& weights) const {
  require(done(), ErrorCode::usage, "fused experts: the layer before is not done");
  require(tokens.rank() == 2 && tensor::is_float(tokens.dtype()) &&
              tokens.size(1) * size_of(tokens.dtype()) == layout_.row_bytes &&
              tokens.size(0) <= most_tokens_ && !tensor::is_gpu(tokens.device()),
          ErrorCode::usage,
          "fused experts: tokens of {} with {} rows of {}; expected at most {} rows of {} bytes in "
          "memory of the cpu",
          tensor::name_of(tokens.dtype()), tokens.size(0), tokens.size(1), most_tokens_,
          layout_.row_bytes);
  require(weights.experts() == static_cast<int64_t>(owner_.size()), ErrorCode::usage,
          "fused experts: a layer of {} experts; {} have a rank", weights.experts(), owner_.size());
  for (size_t e = 0; e < owner_.size(); ++e)
    require(owner_[e] != rank_ || (*weights.routed)[e].down, ErrorCode::usage,
            "fused experts: the weights of expert {} are not on this rank", e);
}

// Memory of all tasks but the gate's, so a layer's memory does not depend on the order of
// work.
void MoeOperator::take_tokens(const Tensor& tokens, Choose choose, const nn::ExpertWeights& weights,
                              const Destination& into) {
  check(tokens, weights);
  tokens_ = tokens;
  choose_ = std::move(choose);
  weights_ = weights;
  rows_ = into.rows;
  combines_ = into.combines;
  result_ = into.result;
  if (combines_ && !result_.defined())
    result_ = Tensor::empty(tokens.shape(), tokens.dtype(), tokens.device());
  shared_ = shared_inner_ = {};
  if (!combines_ || !weights.shared.down) return;
  shared_ = Tensor::empty(tokens.shape(), tokens.dtype(), tokens.device());
  shared_inner_ =
      Tensor::empty({tokens.size(0), weights.shared.up->n}, tokens.dtype(), tokens.device());
}

void MoeOperator::take_weights() {
  own_experts_.clear();
  tiles_ = nullptr;
  const auto values = [](const Tensor& bias) {
    return bias.defined() ? bias.data<float>() : nullptr;
  };
  for (size_t e = 0; e < owner_.size(); ++e) {
    if (owner_[e] != rank_) continue;
    const ops::Expert& expert = (*weights_.routed)[e];
    activation_ = expert.activation;
    own_experts_.push_back(
        {expert.up.get(), expert.down.get(), values(expert.up_bias), values(expert.down_bias)});
  }
  if (own_experts_.empty()) return;
  tiles_ = kernels::table_of(tensor::Device::cpu, own_experts_[0].down->isa).expert_tiles;
  cuts_ = tiles_->cuts(own_experts_[0]);
  inner_bytes_ = tiles_->inner_bytes(own_experts_[0], slot_rows_);
  inner_.at_least(inner_bytes_ * options_.slots);
  joined_.at_least(slot_rows_ * layout_.row_bytes * options_.slots);
}

void MoeOperator::begin(const Tensor& tokens, const nn::Gate& gate,
                        const nn::ExpertWeights& weights) {
  begin(tokens, [&gate](const Tensor& x) { return gate(x); }, weights, {});
}

void MoeOperator::begin(const Tensor& tokens, Choose choose, const nn::ExpertWeights& weights,
                        const Destination& into) {
  take_tokens(tokens, std::move(choose), weights, into);
  take_weights();
  coordinator_.begin(combines_ ? blocks() : 0, shared_.defined(), words_);
}

Tensor MoeOperator::dry_run(const Tensor& tokens, const nn::Gate& gate,
                            const nn::ExpertWeights& weights) {
  return dry_run(tokens, [&gate](const Tensor& x) { return gate(x); }, weights, {});
}

Tensor MoeOperator::dry_run(const Tensor& tokens, Choose choose, const nn::ExpertWeights& weights,
                            const Destination& into) {
  take_tokens(tokens, std::move(choose), weights, into);
  decide();
  for (int b = 0; shared_.defined() && b < blocks(); ++b) share(block(b));
  return result_;
}

void MoeOperator::forget() {
  tokens_ = rows_ = shared_inner_ = shared_ = result_ = {};
  routing_ = {};
  weights_ = {};
  choose_ = {};
}

bool MoeOperator::poll() {
  const bool has_arrivals = coordinator_.poll(words_);
  if (const Arrival counts = coordinator_.refused(); counts.kind != Arrival::Kind::nothing)
    refuse(counts);
  if (has_arrivals && watch_) watch_->polled(coordinator_);
  return has_arrivals;
}

void MoeOperator::refuse(const Arrival& counts) const {
  const int64_t* const rows = coordinator_.counts({.kind = TaskKind::up, .peer = counts.peer});
  const auto in_world = [&](int rank) { return heap_.in_world(rank); };
  fail(ErrorCode::rank,
       "fused experts: rank {} says in epoch {} that it sends rank {} these rows for its experts: "
       "{}; there are {} experts, and room for {} of {} rows from each rank: all ranks must run "
       "the same program on the same model",
       in_world(counts.peer), coordinator_.epoch(), in_world(rank_),
       fmt::join(rows, rows + layout_.experts, ", "), owned_by(owner_, rank_), layout_.most,
       layout_.tiles.tile);
}

TaskKind MoeOperator::next(int processor) {
  Task task;
  return coordinator_.processor(processor).take(task, words_) ? task.kind : TaskKind::none;
}

bool MoeOperator::work(int processor) {
  Task task;
  const Processor handle = coordinator_.processor(processor);
  if (!handle.take(task, words_)) return false;
  if (watch_) watch_->begins(processor, task);
  perform(task);
  if (watch_) watch_->ends(processor, task);
  handle.done(words_);
  return true;
}

void MoeOperator::perform(const Task& task) {
  switch (task.kind) {
    case TaskKind::none: return;
    case TaskKind::gate: return decide(), announce();
    case TaskKind::shared: return share(block(task.index));
    case TaskKind::dispatch: return dispatch(task);
    case TaskKind::up:
    case TaskKind::down: return multiply(task);
    case TaskKind::give_back:
      return heap_.put_signal(
          dispatcher_.tile(task, coordinator_.counts(task), coordinator_.epoch()));
    case TaskKind::collect: return collect(task);
    case TaskKind::combine: return combine(task);
  }
}

void MoeOperator::decide() {
  const ops::Routing routing =
      ops::host_routing(choose_(tokens_), static_cast<int64_t>(owner_.size()));
  routing_ = {routing.ids.contiguous(), routing.weights.contiguous()};
  const int64_t rows = routing_.ids.elements();
  if (!rows_.defined())
    rows_ = Tensor::empty({rows, tokens_.size(1)}, tokens_.dtype(), tokens_.device());
  require(rows_.size(0) == rows, ErrorCode::usage,
          "fused experts: {} rows of tokens and slots for a place of {}", rows, rows_.size(0));
  sort_assignments();
  count_rows();
}

// A counting sort: a group's assignments keep their order.
void MoeOperator::sort_assignments() {
  const int32_t* const ids = routing_.ids.data<int32_t>();
  const int64_t n = routing_.ids.elements();
  begins_.assign(static_cast<size_t>(int64_t{layout_.ranks} * layout_.experts + 1), 0);
  const auto group_of = [&](int64_t a) {
    const auto e = static_cast<size_t>(ids[a]);
    return static_cast<size_t>(group(owner_[e], place_[e]));
  };
  for (int64_t a = 0; a < n; ++a) {
    require(ids[a] >= -1 && ids[a] < static_cast<int64_t>(owner_.size()), ErrorCode::usage,
            "fused experts: token {} goes to expert {}; there are {}", a / routing_.ids.size(1),
            ids[a], owner_.size());
    if (ids[a] >= 0) ++begins_[group_of(a) + 1];
  }
  for (size_t g = 1; g < begins_.size(); ++g) begins_[g] += begins_[g - 1];
  pairs_.resize(static_cast<size_t>(begins_.back()));
  std::vector<int64_t> next(begins_.begin(), begins_.end() - 1);
  for (int64_t a = 0; a < n; ++a) {
    if (ids[a] < 0) continue;
    pairs_[static_cast<size_t>(next[group_of(a)]++)] = static_cast<int32_t>(a);
  }
}

void MoeOperator::count_rows() {
  for (int p = 0; p < layout_.ranks; ++p) {
    int64_t* const counts = coordinator_.routed().to(layout_, p);
    for (int e = 0; e < layout_.experts; ++e) {
      const auto g = static_cast<size_t>(group(p, e));
      const int64_t count = counts[e] = begins_[g + 1] - begins_[g];
      require(layout_.cell == 0 || count <= layout_.cell, ErrorCode::usage,
              "fused experts: {} rows for one expert of rank {}; the layout has room for {}: limit "
              "the experts' capacity to it",
              count, p, layout_.cell);
    }
    require(layout_.fits(counts), ErrorCode::usage,
            "fused experts: {} rows for the experts of rank {}; the layout has room for {} tiles "
            "of {}",
            fmt::join(counts, counts + layout_.experts, ", "), p, layout_.most, layout_.tiles.tile);
  }
}

// Announces the row counts to all ranks, and the waiting blocks to the scheduler.
void MoeOperator::announce() {
  const Routed& routed = coordinator_.routed();
  const auto slots = routing_.ids.size(1);
  for (int p = 0; p < layout_.ranks; ++p) {
    for (int e = 0; p != rank_ && e < layout_.experts; ++e)
      heap_.put_signal(dispatcher_.count(p, e, routed.to(layout_, p)[e], coordinator_.epoch()));
    for (int e = 0; e < layout_.experts; ++e)
      for (int64_t i = 0; i < layout_.tiles.count(routed.to(layout_, p)[e]); ++i) {
        const int64_t rows = layout_.tiles.rows_of(i, routed.to(layout_, p)[e]);
        const Task tile{TaskKind::dispatch, p, e, static_cast<int32_t>(i),
                        static_cast<int32_t>(rows)};
        const int32_t* const pair = pairs(tile);
        Blocks& waits = routed.wait(layout_, tile);
        waits = {0, -1};  // no sum
        if (combines_)
          waits = {static_cast<int32_t>(pair[0] / slots / options_.block),
                   static_cast<int32_t>(pair[rows - 1] / slots / options_.block)};
      }
  }
}

const int32_t* MoeOperator::pairs(const Task& tile) const {
  const auto g = static_cast<size_t>(group(tile.peer, tile.expert));
  return pairs_.data() + begins_[g] + tile.index * layout_.tiles.tile;
}

nn::Range MoeOperator::block(int index) const {
  const int64_t first = index * options_.block;
  return {first, std::min(first + options_.block, tokens_.size(0))};
}

int MoeOperator::blocks() const {
  return static_cast<int>((tokens_.size(0) + options_.block - 1) / options_.block);
}

// As ExpertWeights::shared_rows, for some of the tokens.
void MoeOperator::share(const nn::Range& block) {
  const ops::Expert& expert = weights_.shared;
  const auto part = [&](const Tensor& x) { return x.slice(0, block.begin, block.end); };
  ops::matmul(
      part(tokens_), expert.up,
      {.bias = expert.up_bias, .activation = expert.activation, .into = part(shared_inner_)});
  ops::matmul(part(shared_inner_), expert.down, {.bias = expert.down_bias, .into = part(shared_)});
}

void MoeOperator::dispatch(const Task& task) {
  const int64_t* const counts = coordinator_.counts(task);
  std::byte* to = buffer_ + dispatcher_.offset(task, Side::outgoing, counts);
  const int32_t* const pair = pairs(task);
  const int64_t slots = routing_.ids.size(1);
  const int64_t stride = tokens_.stride(0) * size_of(tokens_.dtype());
  for (int64_t i = 0; i < task.rows; ++i, to += layout_.row_bytes)
    std::memcpy(to, bytes_of(tokens_) + pair[i] / slots * stride,
                static_cast<size_t>(layout_.row_bytes));
  heap_.put_signal(dispatcher_.tile(task, counts, coordinator_.epoch()));
}

// A single tile is computed in place; several tiles are joined and split again.
void MoeOperator::multiply(const Task& task) {
  const bool up = task.kind == TaskKind::up;
  const TileGroup& group = coordinator_.scheduler().group(task.slot);
  const int64_t panels = up ? cuts_.up_panels : cuts_.down_panels;
  const int parts = up ? options_.up_parts : options_.down_parts;
  const bool whole = group.count > 1;
  kernels::ExpertTile product = rows_of(group.tiles[0]);
  if (whole) {
    product.x = product.y = joined_.at_least(0) + task.slot * slot_rows_ * layout_.row_bytes;
    product.x_stride = tokens_.size(1);
    product.pair = nullptr;
    product.slots = 1;
    if (up) join(group, static_cast<std::byte*>(product.y));
  }
  product.rows = group.rows;
  product.begin = whole ? 0 : panels * task.part / parts;
  product.end = whole ? panels : panels * (task.part + 1) / parts;
  product.inner = inner_.at_least(0) + task.slot * inner_bytes_;
  (up ? tiles_->up : tiles_->down)(product);
  if (whole && !up) part(group, static_cast<const std::byte*>(product.y));
}

// Rows of own tokens are read and written in place.
kernels::ExpertTile MoeOperator::rows_of(const Task& tile) const {
  const bool home = tile.peer == rank_;
  const int64_t* const counts = coordinator_.counts(tile);
  Task incoming = tile, leaves = tile;
  incoming.kind = TaskKind::up;
  leaves.kind = TaskKind::give_back;
  return {
      .expert = &own_experts_[static_cast<size_t>(tile.expert)],
      .activation = activation_,
      .x =
          home ? bytes_of(tokens_) : buffer_ + dispatcher_.offset(incoming, Side::incoming, counts),
      .dtype = tokens_.dtype(),
      .x_stride = home ? tokens_.stride(0) : tokens_.size(1),
      .rows = tile.rows,
      .pair = home ? pairs(tile) : nullptr,
      .slots = home ? routing_.ids.size(1) : 1,
      .y = home ? bytes_of(rows_) : buffer_ + dispatcher_.offset(leaves, Side::outgoing, counts)};
}

void MoeOperator::join(const TileGroup& group, std::byte* to) const {
  for (int i = 0; i < group.count; ++i) {
    const kernels::ExpertTile from = rows_of(group.tiles[i]);
    const int64_t stride = from.x_stride * size_of(from.dtype);
    for (int64_t r = 0; r < from.rows; ++r, to += layout_.row_bytes)
      std::memcpy(to,
                  static_cast<const std::byte*>(from.x) +
                      (from.pair ? from.pair[r] / from.slots : r) * stride,
                  static_cast<size_t>(layout_.row_bytes));
  }
}

void MoeOperator::part(const TileGroup& group, const std::byte* from) const {
  for (int i = 0; i < group.count; ++i) {
    const kernels::ExpertTile to = rows_of(group.tiles[i]);
    for (int64_t r = 0; r < to.rows; ++r, from += layout_.row_bytes)
      std::memcpy(static_cast<std::byte*>(to.y) + (to.pair ? to.pair[r] : r) * layout_.row_bytes,
                  from, static_cast<size_t>(layout_.row_bytes));
  }
}

void MoeOperator::collect(const Task& task) {
  const std::byte* from =
      buffer_ + dispatcher_.offset(task, Side::incoming, coordinator_.counts(task));
  const int32_t* const pair = pairs(task);
  for (int64_t i = 0; i < task.rows; ++i, from += layout_.row_bytes)
    std::memcpy(bytes_of(rows_) + pair[i] * layout_.row_bytes, from,
                static_cast<size_t>(layout_.row_bytes));
}

void MoeOperator::combine(const Task& task) {
  const nn::Range range = block(task.index);
  const int64_t slots = routing_.ids.size(1);
  const int32_t* const ids = routing_.ids.data<int32_t>();
  for (int64_t a = range.begin * slots; a < range.end * slots; ++a)
    if (ids[a] < 0)
      std::memset(bytes_of(rows_) + a * layout_.row_bytes, 0,
                  static_cast<size_t>(layout_.row_bytes));
  const int64_t first = range.begin * slots;
  kernels::table_of(tensor::Device::cpu)
      .combine({.rows = bytes_of(rows_) + first * layout_.row_bytes,
                .dtype = tokens_.dtype(),
                .row_stride = tokens_.size(1),
                .tokens = range.size(),
                .slots = slots,
                .hidden = tokens_.size(1),
                .weights = routing_.weights.data<float>() + first,
                .shared = shared_.defined() ? bytes_of(shared_) + range.begin * layout_.row_bytes
                                            : nullptr,
                .shared_stride = tokens_.size(1),
                .y = bytes_of(result_) + range.begin * layout_.row_bytes});
}

Tensor MoeOperator::result() const {
  require(result_.defined() && done(), ErrorCode::usage, "fused experts: the layer is not done");
  return result_;
}

}  // namespace tessera::fused
