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

std::byte* wire_row(const Tensor& message, int64_t row) {
  return static_cast<std::byte*>(message.raw()) +
         row * message.size(1) * tensor::size_of(message.dtype());
}

// Rows of a device, gathered there; the experts' numbers come from the host.
void fill_message(const Tensor& message, const Tensor& tokens, const std::vector<int32_t>& pairs,
                  const int32_t* expert, int64_t k) {
  const int64_t hidden = tokens.size(1), count = message.size(0);
  std::vector<int32_t> from;
  const Tensor numbers = Tensor::empty({count, message.size(1) - hidden}, message.dtype());
  for (int64_t i = 0; i < count; ++i) {
    const int32_t pair = pairs[static_cast<size_t>(i)];
    from.push_back(static_cast<int32_t>(pair / k));
    std::memcpy(wire_row(numbers, i), expert + pair, 4);
  }
  tensor::copy_into(message.slice(1, 0, hidden), ops::gather_rows(tokens, from, tokens.dtype()));
  tensor::copy_into(message.slice(1, hidden, message.size(1)), numbers);
}

}  // namespace

Tensor rows_by_place(std::vector<Tensor> parts, std::span<const int32_t> places) {
  const Tensor& first = parts.at(0);
  parts.push_back(Tensor::zeros({1, first.size(1)}, first.dtype(), first.device()));
  return ops::gather_rows(ops::concat_rows(parts), places, first.dtype());
}

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
  const int64_t row = hidden * tensor::size_of(tokens.dtype());
  flight.row_bytes = row + 4;
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
    const bool there = tokens.device() != tensor::Device::cpu;
    if (there) fill_message(message, tokens, mine, expert, k);
    tensor::parallel_for(there ? 0 : count, 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int32_t pair = mine[static_cast<size_t>(i)];
        std::byte* out = wire_row(message, i);
        const auto* from = static_cast<const std::byte*>(tokens.raw()) +
                           pair / k * tokens.stride(0) * tensor::size_of(tokens.dtype());
        std::memcpy(out, from, static_cast<size_t>(row));
        std::memcpy(out + row, expert + pair, 4);
      }
    });
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

std::vector<Tensor> ExpertExchange::finish(ExpertFlight& flight) const {
  std::vector<Tensor> results = flight.combine.wait();
  for (size_t r = 0; r < results.size(); ++r)
    require(results[r].rank() == 2 && results[r].size(0) == flight.begin[r + 1] - flight.begin[r],
            ErrorCode::rank, "layer {}: rank {} gave back {} rows for {}", flight.site, r,
            results[r].size(0), flight.begin[r + 1] - flight.begin[r]);
  return results;
}

}  // namespace tessera::parallel
