#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/packed_weight.h"
#include "tensor/dtype.h"

namespace tessera::kernels {

/// Epilogue activation of a product. quick_gelu: x * sigmoid(1.702 x) (Hendrycks and Gimpel 2016,
/// section 2). `swiglu` and `geglu` (Shazeer 2020) take paired weights: silu(gate) * up and
/// gelu_tanh(gate) * up.
enum class Activation : uint8_t {
  none,
  silu,
  gelu_tanh,
  gelu_erf,
  quick_gelu,
  relu,
  swiglu,
  geglu
};

/// True if a product with this activation takes paired weights.
constexpr bool is_paired(Activation kind) {
  return kind == Activation::swiglu || kind == Activation::geglu;
}
/// Activation of a single value; for a paired activation, of the gate.
constexpr Activation gate_function(Activation kind) {
  if (kind == Activation::swiglu) return Activation::silu;
  return kind == Activation::geglu ? Activation::gelu_tanh : kind;
}

/// Calls f(std::integral_constant) for an activation, so that code is compiled for each.
template <class F>
constexpr auto with_activation(Activation kind, const F& f) {
  switch (kind) {
    case Activation::silu: return f(std::integral_constant<Activation, Activation::silu>());
    case Activation::gelu_tanh:
      return f(std::integral_constant<Activation, Activation::gelu_tanh>());
    case Activation::gelu_erf: return f(std::integral_constant<Activation, Activation::gelu_erf>());
    case Activation::quick_gelu:
      return f(std::integral_constant<Activation, Activation::quick_gelu>());
    case Activation::relu: return f(std::integral_constant<Activation, Activation::relu>());
    case Activation::swiglu: return f(std::integral_constant<Activation, Activation::swiglu>());
    case Activation::geglu: return f(std::integral_constant<Activation, Activation::geglu>());
    case Activation::none: break;
  }
  return f(std::integral_constant<Activation, Activation::none>());
}

/// Operations on f32 sums before the store, in this order: + bias, activation, * gate, + residual.
struct Epilogue {
  const float* bias = nullptr;  ///< [n]; not with paired weights
  Activation activation = Activation::none;
  const float* gate = nullptr;  ///< [rows, n], row row_of[t] for token t
  int64_t gate_stride = 0;
  const int32_t* row_of = nullptr;  ///< null: row 0 for every token
  const void* residual = nullptr;   ///< [tokens, n]
  tensor::DType residual_dtype = tensor::DType::f32;
  int64_t residual_stride = 0;
};

/// y[rows, n] = epilogue(x[rows, k] W^T); strides in elements. x is rounded to the dtype of W
/// (widened for f32), sums are f32, y is f32, bf16 or f16.
struct MatmulArgs {
  const void* x = nullptr;
  tensor::DType x_dtype = tensor::DType::f32;
  int64_t x_stride = 0;
  int64_t rows = 0;
  const PackedWeight* weight = nullptr;
  Epilogue epilogue;
  const float* low = nullptr;  ///< with PackedWeight::low: x down^T, dense [rows, rank]
  void* y = nullptr;
  tensor::DType y_dtype = tensor::DType::f32;
  int64_t y_stride = 0;
};

namespace reference {
/// Plain loops with f64 sums: the definition of correct results.
void matmul(const MatmulArgs& args);
}  // namespace reference
namespace avx2 {
/// Products over the panel layout: fused multiply-adds.
void matmul(const MatmulArgs& args);
}  // namespace avx2
namespace avx512 {
/// Products over the panel layout: AVX512_BF16 dot products, fused multiply-adds for f32.
void matmul(const MatmulArgs& args);
}  // namespace avx512
namespace amx {
/// Products over the panel layout: AMX tiles for bf16, fused multiply-adds for f32.
void matmul(const MatmulArgs& args);
}  // namespace amx
namespace cuda {
/// cuBLASLt; missing epilogues run in a separate kernel, or on compute capability 9 in Tessera's
/// own products. Outside the row rule, like the library.
void matmul(const MatmulArgs& args);
/// Same for several independent products; on compute capability 9 in a single kernel if faster.
void matmul_group(std::span<const MatmulArgs> all);
}  // namespace cuda

}  // namespace tessera::kernels
