#include "parallel/experts/exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/fail.h"
#include "nn/segments.h"
#include "ops/elementwise.h"
#include "ops/experts.h"
#include "parallel/partition.h"
#include "tensor/scope.h"

namespace tessera::parallel {
namespace {

using tensor::DType;
using tensor::Tensor;

// A message to the experts: rows in a run, then 4 bytes with the expert of each row.
int64_t wire_elements(int64_t hidden, DType dtype) { return hidden + 4 / tensor::size_of(dtype); }

MessageParts parts_of(const Tensor& message, int64_t hidden) {
  const int64_t row_elements = wire_elements(hidden, message.dtype()),
                elements = message.elements();
  require(message.rank() == 1 && elements % row_elements == 0, ErrorCode::rank,
          "a rank sent {} elements, which are no rows of {}", elements, hidden);
  const int64_t count = elements / row_elements, rows_end = count * hidden;
  return {message.slice(0, 0, rows_end).reshape({count, hidden}),
          message.slice(0, rows_end, elements)};
}

}  // namespace

int64_t distinct_experts(const Tensor& ids, int64_t experts) {
  std::vector<bool> is_used(static_cast<size_t>(experts));
  for (int64_t i = 0; i < ids.elements(); ++i)
    if (ids.data<int32_t>()[i] >= 0) is_used[static_cast<size_t>(ids.data<int32_t>()[i])] = true;
  return std::count(is_used.begin(), is_used.end(), true);
}

std::vector<int> experts_in_blocks(int experts, int ranks) {
  std::vector<int> owner(static_cast<size_t>(experts));
  for (int r = 0; r < ranks; ++r) {
    const nn::Range block = nn::split({0, experts}, ranks, r);
    for (int64_t e = block.begin; e < block.end; ++e) owner[static_cast<size_t>(e)] = r;
  }
  return owner;
}

std::vector<std::string> placement_problems(const Plan& plan, const nn::Geometry& geometry) {
  std::vector<std::string> problems;
  int experts = 0;
  for (const nn::ExpertSite& site : geometry.experts) experts = std::max(experts, site.experts);
  if (experts == 0) return problems;
  if (plan.expert > experts)
    problems.push_back(fmt::format("expert={}: the model has {} experts a layer; use at most {}",
                                   plan.expert, experts, experts));
  if (plan.placement == ExpertPlacement::list &&
      static_cast<int>(plan.placement_list.size()) != experts)
    problems.push_back(fmt::format("placement={} places {} experts; name a rank for each of the {}",
                                   fmt::join(plan.placement_list, "+"), plan.placement_list.size(),
                                   experts));
  return problems;
}

std::vector<int> expert_owners(const Plan& plan, int experts) {
  std::vector<int> owner = experts_in_blocks(experts, plan.expert);
  if (plan.placement == ExpertPlacement::strided)
    for (int e = 0; e < experts; ++e) owner[static_cast<size_t>(e)] = e % plan.expert;
  if (plan.placement != ExpertPlacement::list) return owner;
  require(static_cast<int>(plan.placement_list.size()) == experts, ErrorCode::plan,
          "placement={} places {} experts, the model has {} a layer",
          fmt::join(plan.placement_list, "+"), plan.placement_list.size(), experts);
  return plan.placement_list;
}

int experts_of(const Plan& plan, const nn::Geometry& geometry, int rank) {
  if (geometry.experts.empty()) return 0;
  const std::vector<int> owners = expert_owners(plan, geometry.experts.front().experts);
  return static_cast<int>(std::count(owners.begin(), owners.end(), expert_place(plan, rank)));
}

ExpertExchange::ExpertExchange(comm::Communicator* group, std::vector<int> owner,
                               std::shared_ptr<nn::ExpertCache> cache)
    : group_(group), cache_(std::move(cache)), owner_(std::move(owner)), place_(owner_.size()) {
  for (size_t e = 0; e < owner_.size(); ++e)
    require(owner_[e] >= 0 && owner_[e] < ranks(), ErrorCode::plan,
            "expert {} is placed on rank {} of {}", e, owner_[e], ranks());
  size_t next = 0;
  for (int r = 0; r < ranks(); ++r) {
    for (size_t e = 0; e < owner_.size(); ++e)
      if (owner_[e] == r) place_[e] = next++;
    last_place_.push_back(next);
  }
}

comm::Exchange ExpertExchange::start(std::vector<Tensor> messages, const char* operation,
                                     int site) const {
  if (!group_) return comm::Exchange::alone(std::move(messages[0]));
  return comm::all_to_all(*group_, std::move(messages), {operation, site});
}

void ExpertExchange::group(const int32_t* expert, const std::vector<int32_t>& assignments,
                           ExpertFlight& flight) const {
  std::vector<int64_t> next(owner_.size() + 1);
  for (const int32_t a : assignments) ++next[place_.at(static_cast<size_t>(expert[a])) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  flight.begin = {0};
  for (const size_t last : last_place_) flight.begin.push_back(next[last]);
  flight.assignments.resize(assignments.size());
  for (const int32_t a : assignments)
    flight.assignments[static_cast<size_t>(next[place_[static_cast<size_t>(expert[a])]]++)] = a;
}

ExpertFlight ExpertExchange::dispatch(int site, const Tensor& tokens, const Tensor& ids,
                                      const std::vector<int32_t>& assignments,
                                      nn::ExpertWeights weights) {
  ExpertFlight flight;
  flight.site = site;
  flight.weights = std::move(weights);
  flight.hidden = tokens.size(1);
  flight.row_bytes = flight.hidden * tensor::size_of(tokens.dtype()) + 4;
  const int32_t* expert = ids.data<int32_t>();
  group(expert, assignments, flight);
  std::vector<int32_t> from, numbers;
  for (const int32_t a : flight.assignments) {
    from.push_back(static_cast<int32_t>(a / ids.size(1)));
    numbers.push_back(expert[a]);
  }
  std::vector<Tensor> messages;
  for (size_t r = 0; r + 1 < flight.begin.size(); ++r) {
    const auto first = static_cast<size_t>(flight.begin[r]);
    const auto count = static_cast<size_t>(flight.begin[r + 1]) - first;
    messages.push_back(
        Tensor::empty({static_cast<int64_t>(count) * wire_elements(flight.hidden, tokens.dtype())},
                      tokens.dtype(), tokens.device(), tensor::MemoryClass::buffers));
    const MessageParts parts = parts_of(messages.back(), flight.hidden);
    ops::move_rows(tokens, std::span(from).subspan(first, count), parts.rows, {});
    const Tensor bytes = Tensor::empty(parts.numbers.shape(), tokens.dtype());
    if (count > 0) std::memcpy(bytes.raw(), &numbers[first], count * sizeof(int32_t));
    tensor::copy_into(parts.numbers, bytes);
  }
  flight.dispatch = start(std::move(messages), "dispatch", site);
  return flight;
}

Tensor ExpertExchange::read_numbers(const std::vector<MessageParts>& parts) const {
  int64_t count = 0, at = 0;
  for (const MessageParts& part : parts) count += part.rows.size(0);
  const Tensor& like = parts[0].numbers;
  if (like.is_meta()) {  // my experts in turn
    std::vector<int32_t> own_experts;
    for (size_t e = 0; e < owner_.size(); ++e)
      if (owner_[e] == rank()) own_experts.push_back(static_cast<int32_t>(e));
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = own_experts[i % own_experts.size()];
    return Tensor::from(std::span<const int32_t>(ids), {count, 1}).to(tensor::Device::meta);
  }
  const Tensor experts = Tensor::empty({count}, DType::i32, like.device());
  const Tensor bits = experts.bits_as(like.dtype());
  for (const MessageParts& part : parts) {
    tensor::copy_into(bits.slice(0, at, at + part.numbers.elements()), part.numbers);
    at += part.numbers.elements();
  }
  return experts.reshape({count, 1});
}

void ExpertExchange::compute(ExpertFlight& flight, bool waits) {
  std::vector<MessageParts> parts;
  std::vector<Tensor> inputs;
  for (const Tensor& message : flight.dispatch.wait()) {
    parts.push_back(parts_of(message, flight.hidden));
    inputs.push_back(parts.back().rows);
  }
  const Tensor experts = read_numbers(parts);
  const int64_t count = experts.size(0);
  Tensor rows = inputs.size() == 1 ? inputs[0] : ops::concat_rows(inputs);
  auto bank = flight.weights.routed;
  if (cache_ && count > 0)
    bank = std::make_shared<const std::vector<ops::Expert>>(
        cache_->bank(flight.site, flight.weights.experts(), experts));
  if (count > 0) rows = ops::expert_rows(rows, {experts, {}}, *bank);
  std::vector<Tensor> replies;
  int64_t at = 0;
  for (const Tensor& part : inputs) {
    replies.push_back(rows.slice(0, at, at + part.size(0)));
    at += part.size(0);
  }
  if (waits && ranks() > 1) {
    Tensor& own = replies[static_cast<size_t>(rank())];
    const Tensor copy =
        Tensor::empty(own.shape(), own.dtype(), own.device(), tensor::MemoryClass::buffers);
    tensor::copy_into(copy, own);
    own = copy;
  }
  flight.combine = start(std::move(replies), "combine", flight.site);
  flight.computed = true;
}

Tensor ExpertExchange::bring(ExpertFlight& flight, const Tensor& ids, const Tensor& like) {
  const int32_t *first = ids.data<int32_t>(), *last = first + ids.elements();
  const bool holes = std::any_of(first, last, [](int32_t id) { return id < 0; });
  const Tensor rows = (holes ? Tensor::zeros : Tensor::empty)(
      {ids.elements(), like.size(1)}, like.dtype(), like.device(), tensor::MemoryClass::buffers);
  finish(flight, rows);
  return rows;
}

void ExpertExchange::finish(ExpertFlight& flight, const Tensor& rows) const {
  const std::vector<Tensor> results = flight.combine.wait();
  for (size_t r = 0; r < results.size(); ++r) {
    const int64_t first = flight.begin[r], count = flight.begin[r + 1] - first;
    require(results[r].rank() == 2 && results[r].size(0) == count, ErrorCode::rank,
            "layer {}: rank {} gave back {} rows for {}", flight.site, r, results[r].size(0),
            count);
    const auto places = std::span(flight.assignments).subspan(size_t(first), size_t(count));
    if (count > 0) ops::move_rows(results[r], {}, rows, places);
  }
}

}  // namespace tessera::parallel
