#include "parallel/experts/shared_launches.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/fail.h"
#include "comm/collectives.h"
#include "ops/experts.h"
#include "tensor/device_pool.h"
#include "tensor/uncounted.h"

namespace tessera::parallel {
namespace {

using tensor::DType;
using tensor::Tensor;

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

struct SharedLaunches::Form {
  int64_t tokens = 0, hidden = 0, slots = 0, experts = 0;
  int64_t inner = 0;  ///< 0: no experts of its own
  tensor::DType dtype = DType::f32, weights = DType::f32;
  ops::Activation activation = ops::Activation::none;
};

// Threads hand a message over without a copy, so all hold the first rank's board.
void SharedLaunches::meet() {
  if (!places_.empty()) return;
  const tensor::Uncounted aside(tensor::Counts::work);
  std::vector<fused::GpuPlace> places = fused::gather_places(group_);
  if (fused::share_a_gpu(group_, places)) {
    if (group_.rank() == 0) {
      const auto board = std::make_shared<Board>();
      board->parts.resize(static_cast<size_t>(group_.size()));
      constexpr auto kBytes = static_cast<int64_t>(sizeof(Board));
      held_ =
          Tensor::over(tensor::Storage::view(board.get(), kBytes, board), 0, {kBytes}, DType::u8);
    }
    held_ = comm::broadcast(group_, 0, held_, launch_tag(-1));
    board_ = static_cast<Board*>(held_.raw());
  }
  places_ = std::move(places);
}

SharedLaunches::Form SharedLaunches::form_of(const Part& part) const {
  Form form{.tokens = part.tokens.size(0),
            .hidden = part.tokens.size(1),
            .slots = part.ids.size(1),
            .experts = part.experts.experts(),
            .dtype = part.tokens.dtype()};
  if (const ops::Expert* const expert = held_expert(part.experts)) {
    form.inner = expert->up->n;
    form.weights = expert->up->dtype;
    form.activation = expert->activation;
  }
  return form;
}

// Returns when all ranks have come.
fused::DeviceSize SharedLaunches::agree(int site, const Form& own_form) {
  const Tensor message = Tensor::empty({sizeof own_form}, DType::u8);
  std::memcpy(message.raw(), &own_form, sizeof own_form);
  const std::vector<Tensor> messages = comm::all_gather(group_, message, launch_tag(site)).wait();
  std::vector<Form> forms(messages.size());
  for (size_t r = 0; r < forms.size(); ++r) {
    require(messages[r].bytes() == sizeof own_form, ErrorCode::rank,
            "moe=fused, layer {}: rank {} sent {} bytes about its part; expected {}", site,
            group_.in_world(static_cast<int>(r)), messages[r].bytes(), sizeof own_form);
    std::memcpy(&forms[r], messages[r].raw(), sizeof own_form);
  }
  const auto count = static_cast<int64_t>(size_.owner.size());
  fused::DeviceSize size{.ranks = group_.size(),
                         .owner = size_.owner,
                         .tokens = size_.tokens,
                         .slots = forms[0].slots,
                         .hidden = forms[0].hidden,
                         .dtype = forms[0].dtype};
  const Form* holder = nullptr;  // a rank with experts
  for (size_t r = 0; r < forms.size(); ++r) {
    const Form& form = forms[r];
    require(form.hidden == size.hidden && form.dtype == size.dtype && form.slots == size.slots &&
                form.experts == count,
            ErrorCode::rank,
            "moe=fused, layer {}: rank {} has {} tokens of {} channels with {} of {} experts; rank "
            "0 has {} channels, and {} of {} experts",
            site, group_.in_world(static_cast<int>(r)), form.tokens, form.hidden, form.slots,
            form.experts, size.hidden, size.slots, count);
    if (form.inner == 0) continue;
    if (!holder) holder = &form;
    require(form.weights <= DType::i8 && form.activation <= ops::Activation::geglu &&
                form.inner == holder->inner && form.weights == holder->weights &&
                form.activation == holder->activation,
            ErrorCode::rank,
            "moe=fused, layer {}: the experts of rank {} have another form than those of others",
            site, group_.in_world(static_cast<int>(r)));
  }
  if (holder) {
    size.inner = holder->inner;
    size.weights = holder->weights;
    size.activation = holder->activation;
  }
  return size;
}

// With a GPU each, all ranks open the same in the same call.
fused::DeviceLayers& SharedLaunches::layers_for(const fused::DeviceSize& size) {
  const auto it = std::find_if(opened_.begin(), opened_.end(),
                               [&](const Opened& entry) { return entry.size == size; });
  if (it != opened_.end()) return *it->layers;
  Opened opened{size, {}, nullptr};
  if (board_) {
    opened.layers = fused::open_device_layers(size);
  } else {
    opened.buffers = fused::open_peer_buffers(group_, places_, fused::device_buffer_bytes(size));
    const auto open = [&] {
      opened.layers = fused::open_device_layers(size, {group_.rank(), opened.buffers.addresses});
    };
    if (const auto error = comm::first_error(group_, open, launch_tag(-1))) throw Error(*error);
  }
  opened_.push_back(std::move(opened));
  return *opened_.back().layers;
}

void SharedLaunches::launch(const fused::DeviceSize& size, std::span<const Part> parts,
                            int first_rank) {
  fused::DeviceLayers& layers = layers_for(size);
  std::vector<std::vector<fused::ExpertView>> banks;
  std::vector<fused::DeviceLayer> device_layers;
  const auto place = [](const Tensor& x) { return x.defined() ? x.raw() : nullptr; };
  for (const Part& part : parts) {
    banks.push_back(
        views_of(part.experts, size_.owner, first_rank + static_cast<int>(banks.size())));
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
  const tensor::Uncounted aside(tensor::Counts::work);
  const Form form = form_of(part);
  if (!board_) {
    // Kernels of a layer leave no room for transfers, so no rank may still need one.
    tensor::settle(part.tokens.device());
    return launch(agree(site, form), {&part, 1}, group_.rank());
  }
  Part& own_part = board_->parts[static_cast<size_t>(group_.rank())];
  own_part = std::move(part);
  const fused::DeviceSize size = agree(site, form);
  if (group_.rank() == 0) launch(size, board_->parts, 0);
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
