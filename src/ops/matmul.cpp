#include "ops/matmul.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "kernels/packed_transpose.h"
#include "kernels/table.h"
#include "ops/elementwise.h"
#include "tensor/device_pool.h"
#include "tensor/run_watcher.h"
#include "tensor/scope.h"
#include "tensor/shape_format.h"
#include "tensor/uncounted.h"

namespace tessera::ops {
namespace {

void check_matrix(const Tensor& t, const char* name, int64_t rows, int64_t columns) {
  require(t.rank() == 2 && t.size(0) == rows && t.size(1) == columns, ErrorCode::usage,
          "matmul: {} {}; expected [{}, {}]", name, t.shape(), rows, columns);
  require(tensor::is_float(t.dtype()), ErrorCode::usage, "matmul: {} of {}; expected floats", name,
          tensor::name_of(t.dtype()));
}

void check_gate(const Tensor& x, int64_t n, const MatmulOptions& options) {
  require(
      options.gate.rank() == 2 && options.gate.size(1) == n && options.gate.dtype() == DType::f32,
      ErrorCode::usage, "matmul: gate {} of {}; expected f32 [rows, {}]", options.gate.shape(),
      tensor::name_of(options.gate.dtype()), n);
  options.row_of.check("matmul", x.size(0), "gate", options.gate);
}

void check(const Tensor& x, const Weight& w, const MatmulOptions& options) {
  require(x.rank() == 2 && x.size(1) == w->k && tensor::is_float(x.dtype()), ErrorCode::usage,
          "matmul: x {} of {} does not fit weight [{}, {}]; expected floats [tokens, {}]",
          x.shape(), tensor::name_of(x.dtype()), w->n, w->k, w->k);
  const bool paired = is_paired(options.activation);
  require(paired == w->paired, ErrorCode::usage, "matmul: {}",
          paired ? "swiglu and geglu need a paired weight; pack it with pack_paired_weight"
                 : "a paired weight needs activation swiglu or geglu");
  if (options.bias.defined()) {
    require(!paired, ErrorCode::usage,
            "matmul: a bias does not go with swiglu or geglu; leave it out");
    require(options.bias.rank() == 1 && options.bias.size(0) == w->n &&
                options.bias.dtype() == DType::f32,
            ErrorCode::usage, "matmul: bias {} of {}; expected f32 [{}]", options.bias.shape(),
            tensor::name_of(options.bias.dtype()), w->n);
  }
  if (options.gate.defined()) check_gate(x, w->n, options);
  if (options.residual.defined()) check_matrix(options.residual, "residual", x.size(0), w->n);
  if (w->low) {
    const PackedWeight &down = w->low->down, &up = w->low->up;
    require(down.k == w->k && up.n == w->n && up.k == down.n && up.paired == w->paired &&
                up.dtype == DType::f32 && up.isa == w->isa,
            ErrorCode::usage,
            "matmul: a change [{}, {}] [{}, {}] does not fit weight [{}, {}]; pack both alike",
            up.n, up.k, down.n, down.k, w->n, w->k);
    require_beside("matmul", "change", up.data, x.device());
  }
  for (const Tensor* t : {&w->data, &options.bias, &options.gate, &options.residual})
    require(!t->defined() || x.is_meta() || !t->is_meta(), ErrorCode::usage,
            "matmul: x has elements but an operand {} is on meta; put both on one device",
            t->shape());
  require_beside("matmul", "weight", w->data, x.device());
  require_beside("matmul", "bias", options.bias, x.device());
  require_beside("matmul", "gate", options.gate, x.device());
  require_beside("matmul", "residual", options.residual, x.device());
}

void count(const Tensor& x, const Weight& w, const MatmulOptions& options, const Tensor& y) {
  if (!tensor::counts_ops()) return;
  const double n = static_cast<double>(w->n) * (w->paired ? 2 : 1);
  const double depth = static_cast<double>(w->k + (w->low ? w->low->up.k : 0));
  int64_t bytes = x.bytes() + w->bytes() + y.bytes();
  if (options.residual.defined()) bytes += options.residual.bytes();
  tensor::count_op("matmul", 2 * static_cast<double>(x.size(0)) * n * depth,
                   static_cast<double>(bytes),
                   {x.size(0), static_cast<int64_t>(n), w->k, x.dtype()});
}

kernels::Epilogue epilogue_of(const MatmulOptions& options) {
  kernels::Epilogue e;
  e.activation = options.activation;
  if (options.bias.defined()) e.bias = options.bias.data<float>();
  if (options.gate.defined()) {
    e.gate = options.gate.data<float>();
    e.gate_stride = options.gate.stride(0);
    e.row_of = options.row_of.data();
  }
  if (options.residual.defined()) {
    e.residual = options.residual.raw();
    e.residual_dtype = options.residual.dtype();
    e.residual_stride = options.residual.stride(0);
  }
  return e;
}

// x down^T for a low-rank weight; undefined: none.
Tensor low_of(const Tensor& x, const Weight& w) {
  if (!w->low) return {};
  return matmul(x, Weight(w->low, &w->low->down), {.out = DType::f32, .out_as_input = false});
}

kernels::MatmulArgs arguments(const Tensor& x, const Weight& w, const MatmulOptions& options,
                              const Tensor& low, const Tensor& y) {
  return {.x = x.raw(),
          .x_dtype = x.dtype(),
          .x_stride = x.stride(0),
          .rows = x.size(0),
          .weight = w.get(),
          .epilogue = epilogue_of(options),
          .low = low.defined() ? low.data<float>() : nullptr,
          .y = y.raw(),
          .y_dtype = y.dtype(),
          .y_stride = y.stride(0)};
}

// A weight kept on a GPU: row major, converted to another dtype.
PackedWeight packed_there(const Tensor& w, const Tensor& up, DType dtype) {
  PackedWeight packed{w.size(0), w.size(1), dtype, kernels::Isa::reference, up.defined(), {}};
  packed.data = Tensor::empty({packed.n * (packed.paired ? 2 : 1), packed.k}, dtype, w.device(),
                              tensor::MemoryClass::weights);
  tensor::copy_into(packed.data.slice(0, 0, packed.n), cast(w, dtype));
  if (packed.paired)
    tensor::copy_into(packed.data.slice(0, packed.n, 2 * packed.n), cast(up, dtype));
  return packed;
}

StoredMatrix on_host(const StoredMatrix& w) {
  return {w.values.to(Device::cpu), w.scales.to(Device::cpu)};
}

Weight pack(const StoredMatrix& source, const StoredMatrix& up_source, const WeightForm& form,
            Device device) {
  const StoredMatrix stored = form.int4 ? quantised(source, true) : source,
                     up = form.int4 && up_source.values.defined() ? quantised(up_source, true)
                                                                  : up_source;
  const Tensor& w = stored.values;
  const DType dtype = form.dtype;
  if (!tensor::is_gpu(device) || w.is_meta()) {
    PackedWeight packed = kernels::pack_weight(stored, up, dtype, kernels::active_isa());
    packed.int8_rows = form.int8_rows;
    return std::make_shared<const PackedWeight>(std::move(packed));
  }
  require(!holds_nibbles(stored), ErrorCode::usage,
          "weights in int4 are for CPUs; of {} quantise the model to int8 for a GPU",
          tensor::name_of(dtype));
  if (w.device() == device && w.rank() == 2 && dtype != DType::i8)
    return std::make_shared<const PackedWeight>(packed_there(w, up.values, dtype));
  PackedWeight packed =
      kernels::pack_weight(on_host(stored), on_host(up), dtype, kernels::Isa::reference);
  packed.data = packed.data.to(device, tensor::MemoryClass::weights);
  packed.scales = packed.scales.to(device, tensor::MemoryClass::weights);
  return std::make_shared<const PackedWeight>(std::move(packed));
}

}  // namespace

Weight pack_transposed_weight(const Tensor& table, DType dtype) {
  const Device device = table.device();
  const bool there = !table.is_meta() && tensor::is_gpu(device);
  PackedWeight packed =
      kernels::pack_transposed(there ? table.to(Device::cpu) : table, dtype,
                               there ? kernels::Isa::reference : kernels::active_isa());
  if (there) packed.data = packed.data.to(device, tensor::MemoryClass::weights);
  return std::make_shared<const PackedWeight>(std::move(packed));
}

WeightForm WeightForm::of_rows(bool int4) {
  WeightForm form(DType::i8);
  form.int4 = int4;
  form.int8_rows = true;
  return form;
}

std::string name_of(const WeightForm& form) {
  return std::string(form.int4 ? "i4" : tensor::name_of(form.dtype)) +
         (form.int8_rows ? " x i8" : "");
}

StoredMatrix quantised(const StoredMatrix& w, bool int4) {
  const Tensor& values = w.values;
  if (!values.defined() || !tensor::is_float(values.dtype())) return w;
  const tensor::Uncounted aside(tensor::Counts::work);
  if (!values.is_meta()) return int4 ? quantise_groups(values) : quantise_rows(values);
  const int64_t n = values.size(0), k = values.size(1);
  if (!int4)
    return {Tensor::empty({n, k}, DType::i8, Device::meta),
            Tensor::empty({n}, DType::f32, Device::meta)};
  require(k % 2 == 0, ErrorCode::usage, "a weight {} in int4; expected an even number of columns",
          values.shape().str());
  return {Tensor::empty({n, k / 2}, DType::u8, Device::meta),
          Tensor::empty({n, groups_of(k)}, DType::bf16, Device::meta)};
}

Weight pack_weight(const StoredMatrix& w, const WeightForm& form) {
  return pack(w, {}, form, w.values.device());
}
Weight pack_weight(const StoredMatrix& w, const WeightForm& form, Device device) {
  return pack(w, {}, form, device);
}

Weight pack_paired_weight(const StoredMatrix& gate, const StoredMatrix& up,
                          const WeightForm& form) {
  return pack_paired_weight(gate, up, form, gate.values.device());
}
Weight pack_paired_weight(const StoredMatrix& gate, const StoredMatrix& up, const WeightForm& form,
                          Device device) {
  require(up.values.defined(), ErrorCode::usage, "pack_paired_weight: no up weight; give both");
  return pack(gate, up, form, device);
}

Weight pack_panels(const StoredPanels& panels, Device device, bool int8_rows) {
  WeightForm form(DType::i8);
  form.int8_rows = int8_rows;
  if (tensor::is_gpu(device)) {
    const auto [w, up] = rows_of(panels);
    return pack(w, up, form, device);
  }
  PackedWeight packed = kernels::pack_panels(panels, kernels::active_isa());
  packed.int8_rows = int8_rows;
  return std::make_shared<const PackedWeight>(std::move(packed));
}

Tensor matmul(const Tensor& x, const Weight& w, const MatmulOptions& options) {
  require(w != nullptr, ErrorCode::usage, "matmul: no weight; pack one with pack_weight");
  check(x, w, options);
  const DType out = options.out_as_input ? x.dtype() : options.out;
  require(tensor::is_float(out), ErrorCode::usage, "matmul: out is {}; expected f32, bf16 or f16",
          tensor::name_of(out));
  const Tensor y = result_of("matmul", options.into, {x.size(0), w->n}, out, x.device());
  count(x, w, options, y);
  const Tensor low = low_of(x, w);
  if (y.is_meta() || y.elements() == 0) return y;
  const kernels::KernelTable& table = kernels::table_of(x.device(), w->isa);
  if (options.group && table.matmul_group)
    options.group->products_.push_back({x, w, options, low, y});
  else
    table.matmul(arguments(x, w, options, low, y));
  return y;
}

void MatmulGroup::run() {
  const std::vector<Product> products = std::exchange(products_, {});
  if (products.empty()) return;
  std::vector<kernels::MatmulArgs> group;
  for (const Product& p : products) group.push_back(arguments(p.x, p.w, p.options, p.low, p.y));
  kernels::table_of(products[0].x.device(), products[0].w->isa).matmul_group(group);
}

}  // namespace tessera::ops
