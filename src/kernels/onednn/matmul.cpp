#include "kernels/matmul.h"

#include <oneapi/dnnl/dnnl.h>

#include <algorithm>
#include <vector>

#include "base/fail.h"
#include "kernels/reference/epilogue.h"
#include "tensor/scope.h"

// oneDNN is built over OpenMP; a task of ours is one thread of it.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int threads);
}

namespace tessera::kernels::onednn {
namespace {

using tensor::DType;

constexpr int64_t kRows = 256, kColumns = 256;  // of a task

class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

std::vector<float> buffer(int64_t elements) {
  return std::vector<float>(static_cast<size_t>(elements));
}

// Rows of x as f32, dense, rounded to the dtype of the weight.
void widen_rows(const MatmulArgs& args, int64_t first, int64_t rows, float* out) {
  const int64_t k = args.weight->k;
  tensor::with_float_type(args.x_dtype, [&](auto type) {
    const auto* x = static_cast<const decltype(type)*>(args.x);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < k; ++i) {
        const float v = tensor::to_float(x[(first + r) * args.x_stride + i]);
        out[r * k + i] =
            args.weight->dtype == DType::bf16 ? tensor::to_float(tensor::to_bfloat16(v)) : v;
      }
  });
}

// Rows [first, first + n) of W as f32: in place, or widened into `room`.
const float* weight_rows(const PackedWeight& w, int64_t first, int64_t n,
                         std::vector<float>& room) {
  if (w.dtype == DType::f32) return w.data.row<float>(first);
  room.resize(static_cast<size_t>(n * w.k));
  const auto* from = w.data.row<tensor::BFloat16>(first);
  for (size_t i = 0; i < room.size(); ++i) room[i] = tensor::to_float(from[i]);
  return room.data();
}

void product(const float* x, int64_t rows, const float* w, int64_t n, int64_t k, float* sums) {
  const dnnl_status_t status = dnnl_sgemm('N', 'T', rows, n, k, 1, x, k, w, k, 0, sums, n);
  require(status == dnnl_success, ErrorCode::usage, "oneDNN refused a product [{}, {}] x [{}, {}]",
          rows, k, n, k);
}

// One row of sums through the epilogue into columns [column, column + n) of y.
template <class T, class R>
void finish_row(const MatmulArgs& args, int64_t row, int64_t column, int64_t n, const float* sums,
                const float* ups) {
  const Epilogue& e = args.epilogue;
  const float* bias = e.bias ? e.bias + column : nullptr;
  const float* gate =
      e.gate ? e.gate + (e.row_of ? e.row_of[row] : 0) * e.gate_stride + column : nullptr;
  const R* residual =
      e.residual ? static_cast<const R*>(e.residual) + row * e.residual_stride + column : nullptr;
  T* y = static_cast<T*>(args.y) + row * args.y_stride + column;
  for (int64_t j = 0; j < n; ++j) {
    float v = bias ? sums[j] + bias[j] : sums[j];
    if (e.activation != Activation::none)
      v = static_cast<float>(reference::activate(e.activation, v, ups ? ups[j] : 0));
    if (gate) v *= gate[j];
    if (residual) v += tensor::to_float(residual[j]);
    y[j] = tensor::from_float<T>(v);
  }
}

void finish(const MatmulArgs& args, int64_t row, int64_t column, int64_t n, const float* sums,
            const float* ups) {
  tensor::with_float_type(args.y_dtype, [&](auto out) {
    tensor::with_float_type(args.epilogue.residual_dtype, [&](auto in) {
      finish_row<decltype(out), decltype(in)>(args, row, column, n, sums, ups);
    });
  });
}

void block(const MatmulArgs& args, const float* x, int64_t first_row, int64_t rows, int64_t column,
           int64_t n) {
  const OneThread one_thread;
  const PackedWeight& w = *args.weight;
  std::vector<float> room, sums = buffer(rows * n), ups;
  product(x, rows, weight_rows(w, column, n, room), n, w.k, sums.data());
  if (w.paired) {
    ups = buffer(rows * n);
    product(x, rows, weight_rows(w, w.n + column, n, room), n, w.k, ups.data());
  }
  for (int64_t r = 0; r < rows; ++r)
    finish(args, first_row + r, column, n, sums.data() + r * n,
           w.paired ? ups.data() + r * n : nullptr);
}

}  // namespace

void matmul(const MatmulArgs& args) {
  const PackedWeight& w = *args.weight;
  const int64_t columns = (w.n + kColumns - 1) / kColumns;
  for (int64_t first = 0; first < args.rows; first += kRows) {
    const int64_t rows = std::min(kRows, args.rows - first);
    std::vector<float> x = buffer(rows * w.k);
    widen_rows(args, first, rows, x.data());
    tensor::parallel_tasks(columns, [&](int64_t task) {
      const int64_t column = task * kColumns;
      block(args, x.data(), first, rows, column, std::min(kColumns, w.n - column));
    });
  }
}

}  // namespace tessera::kernels::onednn
