#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace tessera::kernels {

/// y[i...] = x[i...] over up to eight axes with any strides (0 repeats x): what permutes, widens or
/// repeats. Elements are bytes without meaning; strides are in elements.
struct CopyArgs {
  static constexpr size_t kMostAxes = 8;
  const void* x = nullptr;
  void* y = nullptr;
  int64_t element = 0;  ///< bytes: 1, 2, 4 or 8
  size_t axes = 0;
  std::array<int64_t, kMostAxes> size{}, x_stride{}, y_stride{};  ///< outermost first
};

/// y[t, :] = table[ids[t], :], cast.
struct GatherArgs {
  const void* table = nullptr;
  tensor::DType dtype = tensor::DType::f32;  ///< of the table: f32, bf16 or f16
  int64_t stride = 0;                        ///< of the table, elements
  const int32_t* ids = nullptr;              ///< [rows], each a row of the table
  int64_t rows = 0, columns = 0;
  void* y = nullptr;  ///< [rows, columns], dense
  tensor::DType y_dtype = tensor::DType::f32;
};

namespace reference {
/// Plain loops: defines correct.
void copy(const CopyArgs& args);
void gather(const GatherArgs& args);
}  // namespace reference
namespace cuda {
/// An element a thread.
void copy(const CopyArgs& args);
void gather(const GatherArgs& args);
}  // namespace cuda

}  // namespace tessera::kernels
