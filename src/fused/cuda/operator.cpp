#include "fused/cuda/operator.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/fail.h"
#include "fused/cuda/kernel.h"
#include "fused/owners.h"
#include "kernels/cuda/device_scratch.h"

namespace tessera::fused::cuda {
namespace {

constexpr int64_t kMostFlags = 4096;  // between two ranks

using tensor::Device;
using tensor::Tensor;

Tensor zeroed(int64_t bytes) {
  return Tensor::zeros({whole_lines(bytes)}, DType::u8, kernels::kKernelDevice,
                       tensor::MemoryClass::buffers);
}

// Copies an object into device memory.
template <class T>
void upload(const Tensor& to, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const Tensor here = Tensor::empty({int64_t{sizeof(T)}}, DType::u8);
  std::memcpy(here.raw(), &value, sizeof(T));
  tensor::copy_into(to.slice(0, 0, int64_t{sizeof(T)}), here);
}

// Maps of rows for kernels with a copy engine.
void map_rows(RankWork& r, const Work& w, int64_t slots) {
  const auto map = [](const void* rows, int64_t channels, int64_t count) {
    return kernels::cuda::row_map("fused experts", rows, channels, count, 1,
                                  static_cast<int>(channels), kBoxRows);
  };
  r.inner_map = map(r.inner, w.inner, slots * w.slot_rows);
  if (w.dtype == w.weights)
    r.heap_map =
        map(r.heap + w.layout.count_region(), w.hidden, w.layout.row_region() / w.layout.row_bytes);
}

// Rows that can be read 16 bytes at a time.
bool in_words(const void* data, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && bytes % 16 == 0;
}

}  // namespace

DeviceOperator::DeviceOperator(Size size, Manner manner, Peers peers)
    : size_(std::move(size)), peers_(std::move(peers)) {
  check(size_);
  const bool alone = !peers_.buffers.empty();
  require(!alone || (std::ssize(peers_.buffers) == size_.ranks && peers_.rank >= 0 &&
                     peers_.rank < size_.ranks),
          ErrorCode::usage, "fused experts on a GPU: {} buffers for rank {} of {}",
          peers_.buffers.size(), peers_.rank, size_.ranks);
  for (size_t r = 0; r < peers_.buffers.size(); ++r)
    require(peers_.buffers[r] || (reaches_far() && static_cast<int>(r) != peers_.rank),
            ErrorCode::usage, "fused experts on a GPU: no buffer of rank {}", r);
  work_.first_rank = alone ? peers_.rank : 0;
  work_.rank_count = alone ? 1 : size_.ranks;
  choose(manner);
  for (int r = 0; r < size_.ranks; ++r) open_rank(r);
}

void DeviceOperator::check(const Size& size) {
  const auto in = [](int64_t n, int64_t low, int64_t high, const char* what) {
    require(n >= low && n <= high, ErrorCode::usage,
            "fused experts on a GPU: {} {}; expected {} to {}", n, what, low, high);
  };
  const std::string problem =
      device_problem(size.ranks, std::ssize(size.owner), size.hidden, size.inner);
  require(problem.empty(), ErrorCode::usage, "fused experts on a GPU: {}", problem);
  in(size.ranks, 1, kMostRanks, "ranks");
  in(std::ssize(size.owner), 1, kMostExperts, "experts");
  in(size.slots, 1, std::ssize(size.owner), "experts of a token");
  in(size.tokens, 0, (int64_t{1} << 30) / size.slots, "tokens");
  for (const int rank : size.owner) in(rank, 0, size.ranks - 1, "as an expert's rank");
  in(size.hidden, 1, int64_t{1} << 30, "channels of a token");
  in(size.inner, 1, int64_t{1} << 30, "inner channels");
  const bool plain = size.weights == DType::f32;
  require(plain ? size.dtype == DType::f32
          : size.weights == DType::f16
              ? size.dtype == DType::f16
              : (size.weights == DType::bf16 || size.weights == DType::i8) &&
                    tensor::is_float(size.dtype),
          ErrorCode::usage,
          "fused experts on a GPU: weights of {} and rows of {}; expected f32 or f16 for both, or "
          "weights of bf16 or i8",
          tensor::name_of(size.weights), tensor::name_of(size.dtype));
}

Layout DeviceOperator::layout_of(const Size& size, const Manner& manner) {
  const int64_t tile = kernel_tiles(size.weights, size.activation).rows;
  const int64_t most = most_owned(size.owner, size.ranks);
  const int64_t row = size.hidden * size_of(size.dtype);
  // Enough for busy links; flags of a rank fit into a block's shared memory.
  const int64_t fill = std::max<int64_t>(4, kDeviceWindow / (tile * row));
  const int64_t window =
      std::min(manner.window > 0 ? manner.window : fill, kMostFlags / size.ranks);
  return Layout::dropless(size.ranks, static_cast<int>(most),
                          size.tokens * std::min(size.slots, most), row, {tile}, window);
}

void DeviceOperator::choose(const Manner& manner) {
  const KernelTiles tiles_of = kernel_tiles(size_.weights, size_.activation);
  const int64_t most = most_owned(size_.owner, size_.ranks);
  work_.layout = layout_of(size_, manner);
  work_.dtype = size_.dtype;
  work_.weights = size_.weights;
  work_.activation = size_.activation;
  work_.block = static_cast<int32_t>(manner.block);
  work_.experts = static_cast<int32_t>(size_.owner.size());
  work_.slots = static_cast<int32_t>(size_.slots);
  work_.hidden = size_.hidden;
  work_.inner = size_.inner;
  work_.patience = manner.patience;
  work_.processors = 1;
  const int fit = resident_blocks(work_);
  const int each = fit / work_.rank_count - 1;
  require(each >= std::max(1, manner.processors), ErrorCode::plan,
          "fused experts on a GPU: {} ranks with {} blocks each must run at once, the GPU runs {} "
          "blocks; use fewer ranks, or moe=bulk",
          work_.rank_count, 1 + std::max(1, manner.processors), fit);
  work_.processors = manner.processors > 0 ? manner.processors : each;
  // Enough tasks for all processors: a few tiles are cut, many are not.
  const int64_t pairs = size_.tokens * size_.slots;
  const int64_t tiles = std::max<int64_t>(1, pairs / tiles_of.rows + std::min(pairs, most));
  const int64_t wish = manner.parts > 0 ? manner.parts : 2 * work_.processors / tiles + 1;
  const auto parts = [&](int64_t columns, int64_t of_panel) {
    return static_cast<int32_t>(std::min(wish, (columns + of_panel - 1) / of_panel));
  };
  work_.up_parts = parts(size_.inner, tiles_of.up_columns);
  work_.down_parts = parts(size_.hidden, tiles_of.down_columns);
  map_rows_ = tiles_of.map_rows;
}

void DeviceOperator::open_rank(int rank) {
  const Layout& layout = work_.layout;
  RankWork& r = work_.ranks[rank];
  const auto own = static_cast<int>(owned_by(size_.owner, rank));
  r.first_expert = rank == 0 ? 0 : work_.ranks[rank - 1].first_expert + experts_.back();
  experts_.push_back(own);
  rows_.emplace_back();
  int place_there = 0;
  for (size_t e = 0; e < size_.owner.size(); ++e)
    if (size_.owner[e] == rank) work_.group_of[e] = rank * layout.experts + place_there++;
  if (!peers_.buffers.empty()) r.heap = peers_.buffers[static_cast<size_t>(rank)];
  if (!is_here(rank)) return;
  const Shape shape{layout,
                    rank,
                    work_.processors,
                    work_.up_parts,
                    work_.down_parts,
                    work_.processors / std::min(work_.up_parts, work_.down_parts) + 1,
                    static_cast<int>((size_.tokens + work_.block - 1) / work_.block),
                    own};
  work_.slot_rows = shape.slot_rows();
  work_.slot_bytes =
      whole_lines(work_.slot_rows * size_.inner * (size_of(size_.weights) == 2 ? 2 : 4));
  const auto memory = [&](int64_t bytes) {
    return memory_.emplace_back(zeroed(bytes)).data<std::byte>();
  };
  const int64_t head = whole_lines(sizeof(Coordinator)), pairs = size_.tokens * size_.slots;
  const int64_t groups = int64_t{layout.ranks} * layout.experts;
  std::byte* const board = memory(head + Coordinator::bytes(shape));
  const Tensor place = memory_.back();
  r.coordinator = reinterpret_cast<Coordinator*>(board);
  if (!r.heap) r.heap = memory(layout.bytes());
  upload(place, Coordinator(shape, r.heap, board + head));
  r.pairs = reinterpret_cast<int32_t*>(memory(4 * pairs));
  r.begins = reinterpret_cast<int32_t*>(memory(4 * (groups + 1)));
  r.counts = reinterpret_cast<int32_t*>(memory(4 * groups * kThreads));
  r.inner = memory(work_.slot_bytes * shape.slots);
  if (map_rows_ > 0) map_rows(r, work_, shape.slots);
  r.stop = reinterpret_cast<uint64_t*>(memory(8));
  if (!endings_.defined()) endings_ = zeroed(int64_t{kMostRanks} * sizeof(Ending));
  r.ending = reinterpret_cast<Ending*>(endings_.data<std::byte>()) + rank;
}

void* DeviceOperator::own_rows(int rank) {
  Tensor& rows = rows_[static_cast<size_t>(rank)];
  if (!rows.defined())
    rows = Tensor::empty({size_.tokens * size_.slots, size_.hidden}, size_.dtype,
                         kernels::kKernelDevice);
  return rows.raw();
}

void DeviceOperator::take(int rank, const Layer& layer) {
  RankWork& r = work_.ranks[rank];
  require(layer.tokens >= 0 && layer.tokens <= size_.tokens &&
              in_words(layer.x, layer.x_stride * size_of(size_.dtype)) &&
              in_words(layer.y, work_.layout.row_bytes) &&
              in_words(layer.rows, work_.layout.row_bytes) &&
              (!layer.shared || in_words(layer.shared, layer.shared_stride * size_of(size_.dtype))),
          ErrorCode::usage,
          "fused experts on a GPU: {} tokens of rank {}; expected at most {}, in rows of whole "
          "16-byte words",
          layer.tokens, rank, size_.tokens);
  r.x = layer.x;
  r.x_stride = layer.x_stride;
  r.tokens = layer.tokens;
  r.ids = layer.ids;
  r.weights = layer.weights;
  r.shared = layer.shared;
  r.shared_stride = layer.shared_stride;
  r.y = layer.y;
  r.rows = layer.rows ? layer.rows : own_rows(rank);
  const auto scales = [](const kernels::PackedWeight& w) {
    return w.scales.defined() ? w.scales.data<float>() : nullptr;
  };
  for (int e = 0; e < experts_[static_cast<size_t>(rank)]; ++e) {
    const kernels::ExpertView& one = layer.bank[e];
    require(one.up->dtype == size_.weights && one.down->dtype == size_.weights &&
                one.up->n == size_.inner && one.up->k == size_.hidden && !one.up->low &&
                !one.down->low,
            ErrorCode::usage,
            "fused experts on a GPU: expert {} of rank {} has weights of {} [{}, {}]; expected {} "
            "[{}, {}] without adapters",
            e, rank, tensor::name_of(one.up->dtype), one.up->n, one.up->k,
            tensor::name_of(size_.weights), size_.inner, size_.hidden);
    work_.bank[r.first_expert + e] = {one.up->data.raw(), one.down->data.raw(), scales(*one.up),
                                      scales(*one.down),  one.up_bias,          one.down_bias};
  }
}

// Experts of the ranks here.
std::span<ExpertData> DeviceOperator::own_bank() {
  size_t count = 0;
  for (int r = 0; r < size_.ranks; ++r)
    if (is_here(r)) count += static_cast<size_t>(experts_[static_cast<size_t>(r)]);
  return {work_.bank + work_.ranks[work_.first_rank].first_expert, count};
}

// Maps of the weights that the copy engine fetches; layers in turn have others.
void DeviceOperator::place_maps() {
  if (map_rows_ == 0) return;
  constexpr const char* kName = "fused experts";
  const auto same = [](const ExpertData& a, const ExpertData& b) {
    return a.up == b.up && a.down == b.down;
  };
  const std::span<const ExpertData> bank = own_bank();
  if (std::equal(bank.begin(), bank.end(), mapped_.begin(), mapped_.end(), same)) return;
  mapped_.assign(bank.begin(), bank.end());
  const auto hidden = static_cast<int>(size_.hidden), inner = static_cast<int>(size_.inner);
  const int64_t up_rows = kernels::is_paired(size_.activation) ? 2 * size_.inner : size_.inner;
  const auto bytes = static_cast<int64_t>(bank.size() * sizeof(ExpertMaps));
  const Tensor here = Tensor::empty({bytes}, DType::u8);
  for (size_t e = 0; e < bank.size(); ++e) {
    const ExpertMaps one{
        kernels::cuda::row_map(kName, bank[e].up, hidden, up_rows, 1, hidden, map_rows_),
        kernels::cuda::row_map(kName, bank[e].down, inner, size_.hidden, 1, inner, map_rows_)};
    std::memcpy(here.data<std::byte>() + e * sizeof one, &one, sizeof one);
  }
  const int64_t before = work_.ranks[work_.first_rank].first_expert * int64_t{sizeof(ExpertMaps)};
  if (!maps_.defined()) maps_ = zeroed(before + bytes);
  tensor::copy_into(maps_.slice(0, before, before + bytes), here);
  work_.maps = reinterpret_cast<const ExpertMaps*>(maps_.data<std::byte>());
}

void DeviceOperator::run(std::span<const Layer> layers) {
  start(layers);
  finish();
}

void DeviceOperator::start(std::span<const Layer> layers) {
  require(std::ssize(layers) == work_.rank_count, ErrorCode::usage,
          "fused experts on a GPU: layers of {} ranks; expected {}", layers.size(),
          work_.rank_count);
  require(!broken_, ErrorCode::rank,
          "fused experts on a GPU: a layer before failed, and left its flags behind");
  for (int i = 0; i < work_.rank_count; ++i)
    take(work_.first_rank + i, layers[static_cast<size_t>(i)]);
  place_maps();
  ++work_.epoch;
  broken_ = true;  // until the end is known
  launch_layer(work_);
  ++launches_;
}

void DeviceOperator::finish() {
  check_endings();
  broken_ = false;
}

void DeviceOperator::check_endings() {
  const Tensor here = endings_.to(Device::cpu);
  tensor::copy_into(endings_, Tensor::zeros(endings_.shape(), DType::u8));
  std::vector<Ending> all(static_cast<size_t>(size_.ranks));
  std::memcpy(all.data(), here.raw(), all.size() * sizeof(Ending));
  // Others wait for a rank that ended with an error.
  for (int r = 0; r < size_.ranks; ++r) {
    if (!is_here(r)) continue;
    const Ending& one = all[static_cast<size_t>(r)];
    require(one.kind != Ending::Kind::no_expert, ErrorCode::usage,
            "fused experts on a GPU: a token of rank {} goes to none of {} experts", r,
            work_.experts);
    require(
        one.kind != Ending::Kind::many_rows, ErrorCode::usage,
        "fused experts on a GPU: rank {} has more rows for rank {} than the layout has room for", r,
        one.missing.peer);
    require(one.kind != Ending::Kind::refused, ErrorCode::rank,
            "fused experts on a GPU: rank {} says in epoch {} that it sends rank {} more rows than "
            "there is room for",
            one.missing.peer, one.epoch, r);
  }
  for (int r = 0; r < size_.ranks; ++r) {
    if (!is_here(r)) continue;
    const Ending& one = all[static_cast<size_t>(r)];
    const Arrival& missing = one.missing;
    require(one.kind != Ending::Kind::waited, ErrorCode::rank,
            "fused experts on a GPU: rank {} waits in epoch {} for the {} of rank {} (expert {}, "
            "tile {}, flag at {}); {} of {} tasks are done",
            r, one.epoch, word_of(missing.kind), missing.peer, missing.tile.expert,
            missing.tile.index, missing.word, one.finished, one.bound);
    require(one.kind == Ending::Kind::done, ErrorCode::rank,
            "fused experts on a GPU: rank {} did not end epoch {}", r, work_.epoch);
  }
}

}  // namespace tessera::fused::cuda
