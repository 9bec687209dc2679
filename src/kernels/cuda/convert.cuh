#pragma once

#include "kernels/cuda/division.cuh"
#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {

/// Format of a product's operands: `split` is f32 as two bf16 planes, the rounded value and the
/// rounding error.
enum class Form : uint8_t { f32, bf16, split };

/// Bytes of `count` elements.
constexpr int64_t bytes_of(Form form, int64_t count) {
  return count * (form == Form::bf16 ? 2 : 4);
}

/// Element `at` of `count` in a form.
__device__ inline void put(void* data, Form form, int64_t count, int64_t at, float value) {
  if (form == Form::f32) {
    static_cast<float*>(data)[at] = value;
    return;
  }
  auto* plane = static_cast<BFloat16*>(data);
  plane[at] = narrow<BFloat16>(value);
  if (form == Form::split) plane[count + at] = narrow<BFloat16>(value - widen(plane[at]));
}

/// V neighbouring elements, V as in load().
template <int V>
__device__ inline void put_all(void* data, Form form, int64_t count, int64_t at,
                               const float (&v)[V]) {
  if (form == Form::f32) return store<V>(data, DType::f32, at, v);
  store<V>(data, DType::bf16, at, v);
  if (form != Form::split) return;
  float left[V];
  TESSERA_UNROLL
  for (int j = 0; j < V; ++j) left[j] = v[j] - widen(narrow<BFloat16>(v[j]));
  store<V>(static_cast<BFloat16*>(data) + count, DType::bf16, at, left);
}

template <Form F, int V>
__global__ void __launch_bounds__(kSpreadThreads)
    convert_kernel(const void* x, DType dtype, int64_t stride, int64_t count, Divisor chunks,
                   void* y, int64_t begin, uint32_t pieces) {
  after_those_before();
  for (uint32_t i = first_small_piece(); i < pieces; i += small_piece_step()) {
    const RowPlace at(i, chunks);
    const int64_t row = begin + at.row, column = int64_t{at.chunk} * V;
    float v[V];
    load<V>(x, dtype, row * stride + column, v);
    put_all<V>(y, F, count, (row * chunks.value + at.chunk) * V, v);
  }
}

/// Queues the conversion of x [rows, columns] to y in a form, dense.
inline void convert(const char* kernel, const void* x, DType dtype, int64_t stride, int64_t rows,
                    int64_t columns, Form form, void* y) {
  const bool words = columns % 8 == 0 && in_words(x, dtype, stride) && in_words(y, DType::f32, 0);
  const int64_t chunks = words ? columns / 8 : columns;
  each_run_of_rows(rows, chunks, [&](int64_t first, int64_t count) {
    const auto run = [&](auto* convert) {
      launch(kernel, convert, early(spread(count * chunks)), x, dtype, stride, rows * columns,
             Divisor(chunks), y, first, static_cast<uint32_t>(count * chunks));
    };
    if (form == Form::f32)
      return run(words ? convert_kernel<Form::f32, 8> : convert_kernel<Form::f32, 1>);
    if (form == Form::bf16)
      return run(words ? convert_kernel<Form::bf16, 8> : convert_kernel<Form::bf16, 1>);
    run(words ? convert_kernel<Form::split, 8> : convert_kernel<Form::split, 1>);
  });
}

/// Stores two neighbouring values, the second only if `both`.
__device__ inline void store_two(void* data, DType dtype, int64_t at, float first, float second,
                                 bool both) {
  if (dtype == DType::bf16 && both && at % 2 == 0) {
    static_cast<uint32_t*>(data)[at / 2] = pack_bf16(first, second);
    return;
  }
  const float one[1] = {first}, two[1] = {second};
  store<1>(data, dtype, at, one);
  if (both) store<1>(data, dtype, at + 1, two);
}

}  // namespace tessera::kernels::cuda
