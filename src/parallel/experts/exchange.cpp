#include "parallel/experts/exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "nn/segments.h"
#include "ops/elementwise.h"
#include "ops/experts.h"
#include "tensor/scope.h"

namespace tessera::parallel {
namespace {

using tensor::DType;
using tensor::Tensor;

// A row on the wire: its elements, then the number of its expert in the last 4 bytes.
int64_t wire_width(int64_t hidden, DType dtype) { return hidden + 4 / tensor::size_of(dtype); }

// The bytes of numbers, one a row, in the dtype of a message.
Tensor as_elements(std::span<const int32_t> numbers, const Tensor& message) {
  const auto rows = static_cast<int64_t>(numbers.size()),
             each = 4 / tensor::size_of(message.dtype());
  const Tensor bytes = Tensor::empty({rows, each}, message.dtype());
  if (rows > 0) std::memcpy(bytes.raw(), numbers.data(), numbers.size_bytes());
  return bytes;
}

}  // namespace

std::vector<int> experts_in_blocks(int experts, int ranks) {
  std::vector<int> owner(static_cast<size_t>(experts));
  for (int r = 0; r < ranks; ++r) {
    const nn::Range mine = nn::split({0, experts}, ranks, r);
    for (int64_t e = mine.begin; e < mine.end; ++e) owner[static_cast<size_t>(e)] = r;
  }
  return owner;
}

std::vector<std::string> placement_problems(const Plan& plan, const nn::Geometry& geometry) {
  std::vector<std::string> found;
  int experts = 0;
  for (const nn::ExpertSite& site : geometry.experts) experts = std::max(experts, site.experts);
  if (experts == 0) return found;
  if (plan.expert > experts)
    found.push_back(fmt::format("expert={}: the model has {} experts a layer; use at most {}",
                                plan.expert, experts, experts));
  if (plan.placement == ExpertPlacement::list &&
      static_cast<int>(plan.placement_list.size()) != experts)
    found.push_back(fmt::format("placement={} places {} experts; name a rank for each of the {}",
                                fmt::join(plan.placement_list, "+"), plan.placement_list.size(),
                                experts));
  return found;
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

ExpertExchange::ExpertExchange(comm::Communicator* group, std::vector<int> owner)
    : group_(group), owner_(std::move(owner)) {
  for (size_t e = 0; e < owner_.size(); ++e)
    require(owner_[e] >= 0 && owner_[e] < ranks(), ErrorCode::plan,
            "expert {} is placed on rank {} of {}", e, owner_[e], ranks());
}

comm::Exchange ExpertExchange::start(std::vector<Tensor> messages, const char* operation,
                                     int site) const {
  if (!group_) return comm::Exchange::alone(std::move(messages[0]));
  return comm::all_to_all(*group_, std::move(messages), {operation, site});
}

ExpertFlight ExpertExchange::dispatch(int site, const Tensor& tokens, const Tensor& ids,
                                      const std::vector<int32_t>& pairs,
                                      nn::ExpertBank bank) const {
  ExpertFlight flight;
  flight.site = site;
  flight.bank = std::move(bank);
  const int64_t k = ids.size(1), hidden = tokens.size(1),
                width = wire_width(hidden, tokens.dtype());
  flight.row_bytes = hidden * tensor::size_of(tokens.dtype()) + 4;
  const int32_t* expert = ids.data<int32_t>();
  std::vector<std::vector<int32_t>> to(static_cast<size_t>(ranks()));
  for (int32_t pair : pairs) to[static_cast<size_t>(owner(expert[pair]))].push_back(pair);
  std::vector<Tensor> messages;
  flight.begin.push_back(0);
  flight.pairs.reserve(pairs.size());
  for (const auto& mine : to) {
    const auto count = static_cast<int64_t>(mine.size());
    Tensor message = Tensor::empty({count, width}, tokens.dtype(), tokens.device(),
                                   tensor::MemoryClass::buffers);
    std::vector<int32_t> from, numbers;
    for (const int32_t pair : mine) {
      from.push_back(static_cast<int32_t>(pair / k));
      numbers.push_back(expert[pair]);
    }
    ops::move_rows(tokens, from, message.slice(1, 0, hidden), {});
    tensor::copy_into(message.slice(1, hidden, width), as_elements(numbers, message));
    messages.push_back(std::move(message));
    flight.pairs.insert(flight.pairs.end(), mine.begin(), mine.end());
    flight.begin.push_back(static_cast<int64_t>(flight.pairs.size()));
  }
  flight.dispatch = start(std::move(messages), "dispatch", site);
  return flight;
}

void ExpertExchange::compute(ExpertFlight& flight) const {
  const std::vector<Tensor> arrived = flight.dispatch.wait();
  std::vector<Tensor> parts;
  std::vector<int32_t> ids;
  for (const Tensor& message : arrived) {
    require(message.rank() == 2 && message.size(1) == arrived[0].size(1), ErrorCode::rank,
            "layer {}: a rank sent rows of another width", flight.site);
    const int64_t hidden = message.size(1) - 4 / tensor::size_of(message.dtype());
    parts.push_back(message.slice(1, 0, hidden));
    const Tensor numbers = message.slice(1, hidden, message.size(1)).to(tensor::Device::cpu);
    for (int64_t i = 0; i < message.size(0); ++i) {
      int32_t id = 0;
      std::memcpy(
          &id, numbers.data<std::byte>() + i * numbers.stride(0) * tensor::size_of(message.dtype()),
          4);
      ids.push_back(id);
    }
  }
  const int64_t count = static_cast<int64_t>(ids.size());
  Tensor rows = parts.size() == 1 ? parts[0] : ops::concat_rows(parts);
  if (count > 0)
    rows = ops::expert_rows(
        rows, {Tensor::from(std::span<const int32_t>(ids), {count, 1}).to(rows.device()), {}},
        flight.bank->routed);
  std::vector<Tensor> replies;
  int64_t at = 0;
  for (const Tensor& message : arrived) {
    replies.push_back(rows.slice(0, at, at + message.size(0)));
    at += message.size(0);
  }
  flight.combine = start(std::move(replies), "combine", flight.site);
  flight.computed = true;
}

void ExpertExchange::finish(ExpertFlight& flight, const Tensor& rows) const {
  const std::vector<Tensor> results = flight.combine.wait();
  for (size_t r = 0; r < results.size(); ++r) {
    const int64_t first = flight.begin[r], count = flight.begin[r + 1] - first;
    require(results[r].rank() == 2 && results[r].size(0) == count, ErrorCode::rank,
            "layer {}: rank {} gave back {} rows for {}", flight.site, r, results[r].size(0),
            count);
    const auto places = std::span(flight.pairs).subspan(size_t(first), size_t(count));
    if (count > 0) ops::move_rows(results[r], {}, rows, places);
  }
}

}  // namespace tessera::parallel
