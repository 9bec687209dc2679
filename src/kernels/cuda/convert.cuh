#pragma once

#include "kernels/cuda/launch.cuh"

namespace tessera::kernels::cuda {

/// How operands of products are held: `split` is f32 as two bf16 planes, the value rounded and what
/// the rounding left.
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

template <Form F>
__global__ void __launch_bounds__(kSpreadThreads)
    convert_kernel(const void* x, DType dtype, int64_t stride, int64_t rows, int64_t columns,
                   void* y) {
  for (int64_t i = first_piece(); i < rows * columns; i += piece_step()) {
    float v[1];
    load<1>(x, dtype, i / columns * stride + i % columns, v);
    put(y, F, rows * columns, i, v[0]);
  }
}

/// Queues x [rows, columns] -> y in a form, dense.
inline void convert(const char* kernel, const void* x, DType dtype, int64_t stride, int64_t rows,
                    int64_t columns, Form form, void* y) {
  launch(kernel,
         form == Form::f32    ? convert_kernel<Form::f32>
         : form == Form::bf16 ? convert_kernel<Form::bf16>
                              : convert_kernel<Form::split>,
         spread(rows * columns), x, dtype, stride, rows, columns, y);
}

/// Stores two neighbouring values, the second only where `both`.
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
