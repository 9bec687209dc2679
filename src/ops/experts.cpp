#include "ops/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/fail.h"
#include "kernels/experts.h"
#include "kernels/table.h"
#include "ops/upload.h"
#include "tensor/run_watcher.h"
#include "tensor/scope.h"
#include "tensor/shape_format.h"

namespace tessera::ops {
namespace {

// The shape shared by all experts; a rank may hold only some of them.
const Expert& first_of(const std::vector<Expert>& bank) {
  for (const Expert& w : bank)
    if (w.up || w.down) return w;
  fail(ErrorCode::usage, "experts: the bank is empty; give at least one expert");
}

void check_bias(const Tensor& x, const char* name, const Tensor& bias, int64_t n, size_t e) {
  if (!bias.defined()) return;
  require(bias.rank() == 1 && bias.size(0) == n && bias.dtype() == DType::f32 && bias.dense(),
          ErrorCode::usage, "experts: expert {} has {} {} of {}; expected dense f32 [{}]", e, name,
          bias.shape(), tensor::name_of(bias.dtype()), n);
  require_beside("experts", name, bias, x.device());
}

// Checks an expert's products and epilogue.
void check_finish(const Tensor& x, const Expert& w, const Expert& first, size_t e) {
  require(w.activation == first.activation && w.up_bias.defined() == first.up_bias.defined() &&
              w.down_bias.defined() == first.down_bias.defined(),
          ErrorCode::usage,
          "experts: expert {} has another activation, or other biases, than the first; a layer's "
          "experts are of one form",
          e);
  require(!w.up_bias.defined() || !is_paired(w.activation), ErrorCode::usage,
          "experts: expert {} is a gated pair with a bias of its first product; leave it out", e);
  check_bias(x, "up_bias", w.up_bias, w.up->n, e);
  check_bias(x, "down_bias", w.down_bias, w.down->n, e);
}

void check_experts(const Tensor& x, const Routing& routing, const std::vector<Expert>& bank) {
  require(x.rank() == 2 && tensor::is_float(x.dtype()), ErrorCode::usage,
          "experts: x {} of {}; expected floats [tokens, hidden]", x.shape(),
          tensor::name_of(x.dtype()));
  require(routing.ids.defined() && routing.ids.rank() == 2 && routing.ids.size(0) == x.size(0) &&
              routing.ids.dtype() == DType::i32 && routing.ids.dense(),
          ErrorCode::usage, "experts: routing of {} for x {}; expected dense i32 ids [{}, k]",
          routing.ids.shape(), x.shape(), x.size(0));
  require(routing.ids.elements() <= std::numeric_limits<int32_t>::max(), ErrorCode::usage,
          "experts: {} rows; at most 2^31 - 1", routing.ids.elements());
  const Expert& first = first_of(bank);
  for (size_t e = 0; e < bank.size(); ++e) {
    const Expert& w = bank[e];
    if (!w.up && !w.down) continue;  // held by another rank
    require(w.up && w.down, ErrorCode::usage, "experts: expert {} has half of its weights", e);
    const bool paired = is_paired(first.activation);
    require(w.up->paired == paired && !w.down->paired && w.up->k == x.size(1) &&
                w.down->n == x.size(1) && w.down->k == w.up->n && w.up->n == first.up->n &&
                w.down->dtype == w.up->dtype && w.down->dtype == first.down->dtype &&
                w.up->isa == first.up->isa && w.down->isa == first.down->isa,
            ErrorCode::usage,
            "experts: expert {} has up [{}, {}] and down [{}, {}]; expected a {} [{}, {}] and a "
            "plain [{}, {}], packed alike in all experts",
            e, w.up->n, w.up->k, w.down->n, w.down->k, paired ? "paired" : "plain", first.up->n,
            x.size(1), x.size(1), first.up->n);
    require(x.device() == tensor::Device::meta ||
                (w.down->int4 == w.up->int4 && w.down->int4 == first.down->int4),
            ErrorCode::model,
            "experts: a part of expert {} is in int4 and another is not; the model is damaged, "
            "quantise it anew",
            e);
    require(!w.up->low && !w.down->low, ErrorCode::usage,
            "experts: an adapter changes expert {}; experts take none", e);
    check_finish(x, w, first, e);
  }
}

void check_ids(const Tensor& ids, const std::vector<Expert>& bank) {
  const int32_t* id = ids.data<int32_t>();
  for (int64_t i = 0; i < ids.elements(); ++i) {
    require(id[i] >= -1 && id[i] < static_cast<int64_t>(bank.size()), ErrorCode::usage,
            "experts: token {} goes to expert {}; there are {}", i / ids.size(1), id[i],
            bank.size());
    require(id[i] < 0 || bank[static_cast<size_t>(id[i])].down, ErrorCode::usage,
            "experts: token {} goes to expert {}, whose weights are not on this rank",
            i / ids.size(1), id[i]);
  }
}

// Experts with at least one row; if the host cannot see the ids, an estimate from the scope's
// assumptions.
double touched_experts(const Tensor& ids, size_t experts) {
  if (ids.device() != tensor::Device::cpu) {
    const double share = tensor::current_scope().assumptions.touched_experts;
    return std::min(std::ceil(share * static_cast<double>(experts)),
                    static_cast<double>(ids.elements()));
  }
  std::vector<bool> is_used(experts);
  const int32_t* id = ids.data<int32_t>();
  for (int64_t i = 0; i < ids.elements(); ++i)
    if (id[i] >= 0) is_used[static_cast<size_t>(id[i])] = true;
  return static_cast<double>(std::count(is_used.begin(), is_used.end(), true));
}

}  // namespace

void count_expert_rows(const std::vector<Expert>& bank, const Tensor& x, int64_t rows,
                       double experts_used) {
  if (!tensor::counts_ops()) return;
  const Expert& w = first_of(bank);
  const double flops = (w.up->paired ? 6 : 4) * static_cast<double>(rows) *
                       static_cast<double>(w.up->n) * static_cast<double>(w.up->k);
  const double weights = experts_used * static_cast<double>(w.up->bytes() + w.down->bytes());
  const double row = static_cast<double>(x.size(1) * size_of(x.dtype()));
  tensor::count_op("experts", flops,
                   weights + static_cast<double>(x.bytes()) + static_cast<double>(rows) * row,
                   {rows, w.up->n, w.up->k, x.dtype()});
}

void count_combine(const Tensor& rows, const Tensor& y, bool shared) {
  tensor::count_op("combine", 2 * static_cast<double>(rows.elements()),
                   static_cast<double>(rows.bytes() + y.bytes() * (shared ? 2 : 1)),
                   tensor::op_size(rows));
}

Tensor expert_rows(const Tensor& x, const Routing& routing, const std::vector<Expert>& bank) {
  check_experts(x, routing, bank);
  require_beside("experts", "the routing", routing.ids, x.device());
  require_beside("experts", "the bank", first_of(bank).down->data, x.device());
  const Tensor& ids = routing.ids;
  Tensor rows = Tensor::empty({ids.elements(), x.size(1)}, x.dtype(), x.device());
  if (x.device() == tensor::Device::cpu) check_ids(ids, bank);
  count_expert_rows(bank, x, ids.elements(), touched_experts(ids, bank.size()));
  if (rows.is_meta() || rows.elements() == 0) return rows;
  std::vector<kernels::ExpertView> views;
  views.reserve(bank.size());
  const Expert& first = first_of(bank);
  const auto values = [](const Tensor& bias) {
    return bias.defined() ? bias.data<float>() : nullptr;
  };
  for (const Expert& w : bank) {  // kernels read shapes from any expert
    const Expert& there = w.down ? w : first;
    views.push_back(
        {there.up.get(), there.down.get(), values(there.up_bias), values(there.down_bias)});
  }
  kernels::table_of(x.device(), first.down->isa)
      .experts({.x = x.raw(),
                .dtype = x.dtype(),
                .x_stride = x.stride(0),
                .tokens = x.size(0),
                .slots = ids.size(1),
                .hidden = x.size(1),
                .inner = first.up->n,
                .activation = first.activation,
                .ids = ids.data<int32_t>(),
                .bank = views.data(),
                .experts = static_cast<int64_t>(views.size()),
                .rows = rows.raw()});
  return rows;
}

Tensor combine_rows(const Tensor& rows, const Tensor& weights, const Tensor& shared) {
  require(
      rows.rank() == 2 && tensor::is_float(rows.dtype()) && weights.rank() == 2 &&
          weights.dtype() == DType::f32 && weights.dense() && rows.size(0) == weights.elements(),
      ErrorCode::usage,
      "combine_rows: rows {} of {} and weights {} of {}; expected float [tokens * k, hidden] and "
      "dense f32 [tokens, k]",
      rows.shape(), tensor::name_of(rows.dtype()), weights.shape(),
      tensor::name_of(weights.dtype()));
  const int64_t tokens = weights.size(0), slots = weights.size(1), hidden = rows.size(1);
  require(!shared.defined() || (shared.rank() == 2 && shared.size(0) == tokens &&
                                shared.size(1) == hidden && shared.dtype() == rows.dtype()),
          ErrorCode::usage, "combine_rows: shared {} of {}; expected {} [{}, {}]", shared.shape(),
          shared.defined() ? tensor::name_of(shared.dtype()) : "", tensor::name_of(rows.dtype()),
          tokens, hidden);
  require_beside("combine_rows", "weights", weights, rows.device());
  require_beside("combine_rows", "shared", shared, rows.device());
  Tensor y = Tensor::empty({tokens, hidden}, rows.dtype(), rows.device());
  count_combine(rows, y, shared.defined());
  if (y.is_meta() || y.elements() == 0) return y;
  kernels::table_of(rows.device())
      .combine({.rows = rows.raw(),
                .dtype = rows.dtype(),
                .row_stride = rows.stride(0),
                .tokens = tokens,
                .slots = slots,
                .hidden = hidden,
                .weights = weights.data<float>(),
                .shared = shared.defined() ? shared.raw() : nullptr,
                .shared_stride = shared.defined() ? shared.stride(0) : 0,
                .y = y.raw()});
  return y;
}

Tensor experts(const Tensor& x, const Routing& routing, const std::vector<Expert>& bank,
               const Tensor& shared) {
  require(routing.weights.defined() && routing.ids.defined() &&
              routing.weights.shape() == routing.ids.shape(),
          ErrorCode::usage, "experts: the weights of the routing do not have the shape of its ids");
  return combine_rows(expert_rows(x, routing, bank), routing.weights, shared);
}

}  // namespace tessera::ops
