#include "parallel/experts/shared_launches.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/fail.h"
#include "comm/collectives.h"
#include "comm/whereabouts.h"
#include "ops/experts.h"
#include "tensor/uncounted.h"

namespace tessera::parallel {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor place_message(const comm::Whereabouts& place) {
  const Tensor message = Tensor::empty({sizeof place}, DType::u8);
  std::memcpy(message.raw(), &place, sizeof place);
  return message;
}
comm::Whereabouts read_place(const Tensor& message) {
  comm::Whereabouts place;
  require(message.bytes() == sizeof place, ErrorCode::rank,
          "a rank sent {} bytes of its place; expected {}", message.bytes(), sizeof place);
  std::memcpy(&place, message.raw(), sizeof place);
  return place;
}
Tensor empty_message() { return Tensor::empty({0}, DType::u8); }

comm::Tag launch_tag(int site) { return {"launch", site, TrafficKind::control}; }

// An expert with weights, of the rank's own.
const ops::Expert* held_expert(const nn::ExpertWeights& weights) {
  for (const ops::Expert& expert : *weights.routed)
    if (expert.up && expert.down) return &expert;
  return nullptr;
}

// Views of the own experts for kernels.
std::vector<fused::ExpertView> views_of(const nn::ExpertWeights& weights,
                                        const std::vector<int>& owner, int rank) {
  const auto values = [](const Tensor& bias) {
    return bias.defined() ? bias.data<float>() : nullptr;
  };
  std::vector<fused::ExpertView> views;
  for (size_t e = 0; e < owner.size(); ++e) {
    if (owner[e] != rank) continue;
    const ops::Expert& expert = weights.routed->at(e);
    require(expert.up && expert.down, ErrorCode::usage,
            "moe=fused on a GPU: expert {} has no weights on its rank {}", e, rank);
    views.push_back(
        {expert.up.get(), expert.down.get(), values(expert.up_bias), values(expert.down_bias)});
  }
  return views;
}

}  // namespace

// Threads hand a message over without a copy, so all hold the first rank's board.
void SharedLaunches::meet() {
  if (board_) return;
  const tensor::Uncounted aside(tensor::Counts::work);
  const std::vector<Tensor> messages =
      comm::all_gather(group_, place_message(comm::Whereabouts::here()), launch_tag(-1)).wait();
  const comm::Whereabouts first = read_place(messages[0]);
  for (size_t r = 0; r < messages.size(); ++r) {
    const comm::Whereabouts place = read_place(messages[r]);
    require(place.pid == first.pid && place.machine == first.machine, ErrorCode::plan,
            "moe=fused on GPUs is for ranks that are threads and share a GPU; rank {} is a process "
            "of its own; use moe=bulk",
            group_.in_world(static_cast<int>(r)));
  }
  if (group_.rank() == 0) {
    const auto board = std::make_shared<Board>();
    board->parts.resize(static_cast<size_t>(group_.size()));
    constexpr auto kBytes = static_cast<int64_t>(sizeof(Board));
    held_ = Tensor::over(tensor::Storage::view(board.get(), kBytes, board), 0, {kBytes}, DType::u8);
  }
  held_ = comm::broadcast(group_, 0, held_, launch_tag(-1));
  board_ = static_cast<Board*>(held_.raw());
}

fused::DeviceSize SharedLaunches::form_of(int site) const {
  const Part& like = board_->parts[0];
  fused::DeviceSize size{.ranks = group_.size(),
                         .owner = size_.owner,
                         .tokens = size_.tokens,
                         .slots = like.ids.size(1),
                         .hidden = like.tokens.size(1),
                         .dtype = like.tokens.dtype()};
  for (size_t r = 0; r < board_->parts.size(); ++r) {
    const Part& part = board_->parts[r];
    require(part.tokens.size(1) == size.hidden && part.tokens.dtype() == size.dtype &&
                part.ids.size(1) == size.slots &&
                part.experts.experts() == static_cast<int64_t>(size_.owner.size()),
            ErrorCode::rank,
            "moe=fused, layer {}: rank {} has {} tokens of {} channels with {} of {} experts; rank "
            "0 has {} channels, and {} of {} experts",
            site, group_.in_world(static_cast<int>(r)), part.tokens.size(0), part.tokens.size(1),
            part.ids.size(1), part.experts.experts(), size.hidden, size.slots, size_.owner.size());
    const ops::Expert* const expert = held_expert(part.experts);
    if (!expert) continue;
    size.inner = expert->up->n;
    size.weights = expert->up->dtype;
    size.activation = expert->activation;
  }
  return size;
}

fused::DeviceLayers& SharedLaunches::layers_for(const fused::DeviceSize& size) {
  const auto it = std::find_if(opened_.begin(), opened_.end(),
                               [&](const Opened& entry) { return entry.size == size; });
  if (it != opened_.end()) return *it->layers;
  opened_.push_back({size, fused::open_device_layers(size)});
  return *opened_.back().layers;
}

void SharedLaunches::launch(int site) {
  fused::DeviceLayers& layers = layers_for(form_of(site));
  std::vector<std::vector<fused::ExpertView>> banks;
  std::vector<fused::DeviceLayer> device_layers;
  const auto place = [](const Tensor& x) { return x.defined() ? x.raw() : nullptr; };
  for (size_t r = 0; r < board_->parts.size(); ++r) {
    const Part& part = board_->parts[r];
    banks.push_back(views_of(part.experts, size_.owner, static_cast<int>(r)));
    device_layers.push_back(
        {.x = part.tokens.raw(),
         .x_stride = part.tokens.stride(0),
         .tokens = part.tokens.size(0),
         .ids = part.ids.data<int32_t>(),
         .weights = part.weights.defined() ? part.weights.data<float>() : nullptr,
         .shared = place(part.shared),
         .shared_stride = part.shared.defined() ? part.shared.stride(0) : 0,
         .bank = banks.back().data(),
         .y = place(part.result),
         .rows = place(part.rows)});
  }
  layers.run(device_layers);
}

void SharedLaunches::run(int site, Part part) {
  meet();
  require(part.ids.dense() && (!part.weights.defined() || part.weights.dense()), ErrorCode::usage,
          "moe=fused, layer {}: a routing in pieces", site);
  Part& own_part = board_->parts[static_cast<size_t>(group_.rank())];
  own_part = std::move(part);
  const tensor::Uncounted aside(tensor::Counts::work);
  (void)comm::gather(group_, 0, empty_message(), launch_tag(site));
  if (group_.rank() == 0) launch(site);
  (void)comm::broadcast(group_, 0, empty_message(), launch_tag(site));
  own_part = {};
}

SharedLaunches::Count SharedLaunches::count(int site, const Tensor& ids,
                                            const nn::ExpertWeights& weights,
                                            const Tensor& like) const {
  const tensor::Uncounted aside(tensor::Counts::work);
  const int64_t row_bytes = like.size(1) * size_of(like.dtype());
  const Tensor message = Tensor::zeros({static_cast<int64_t>(size_.owner.size())}, DType::i64);
  Count result{.assignments = std::vector<int64_t>(static_cast<size_t>(group_.size()))};
  for (int64_t a = 0; a < ids.elements(); ++a) {
    const int32_t id = ids.data<int32_t>()[a];
    if (id < 0) continue;
    ++message.data<int64_t>()[id];
    ++result.assignments[static_cast<size_t>(size_.owner[static_cast<size_t>(id)])];
  }
  const std::vector<Tensor> messages = comm::all_gather(group_, message, launch_tag(site)).wait();
  std::vector<int64_t> own_rows(size_.owner.size());  // rows of own experts
  for (int p = 0; p < group_.size(); ++p) {
    const auto* const peer_rows = messages[static_cast<size_t>(p)].data<int64_t>();
    int64_t returned = 0;
    for (size_t e = 0; e < own_rows.size(); ++e)
      if (size_.owner[e] == group_.rank()) own_rows[e] += peer_rows[e], returned += peer_rows[e];
    if (p == group_.rank()) continue;
    const int64_t sent_rows = result.assignments[static_cast<size_t>(p)];
    group_.ledger().sent({"dispatch", site}, sent_rows * row_bytes, sent_rows > 0 ? 1 : 0);
    group_.ledger().sent({"combine", site}, returned * row_bytes, returned > 0 ? 1 : 0);
    result.coming += (sent_rows + returned) * row_bytes;
  }
  const int64_t rows = std::accumulate(own_rows.begin(), own_rows.end(), int64_t{0});
  const auto touched_experts =
      std::count_if(own_rows.begin(), own_rows.end(), [](int64_t n) { return n > 0; });
  if (rows > 0)
    ops::count_expert_rows(*weights.routed, like, rows, static_cast<double>(touched_experts));
  return result;
}

// Any routing sends a rank at most all rows of the others, and brings back as many as it sent.
int64_t SharedLaunches::coming_bound(const Tensor& like) const {
  int64_t own_experts = 0, rows = 0;
  for (int r = 0; r < group_.size(); ++r) {
    const int64_t experts = std::count(size_.owner.begin(), size_.owner.end(), r);
    if (r == group_.rank())
      own_experts = experts;
    else
      rows += size_.tokens * std::min<int64_t>(size_.slots, experts);
  }
  rows += (group_.size() - 1) * size_.tokens * std::min<int64_t>(size_.slots, own_experts);
  return rows * like.size(1) * size_of(like.dtype());
}

}  // namespace tessera::parallel
