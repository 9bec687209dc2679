#include "kernels/cuda/row_map.h"

#include <cudaTypedefs.h>

#include <cstring>
#include <string>

#include "kernels/cuda/driver_entry.h"
#include "kernels/device_error.h"

namespace tessera::kernels::cuda {
namespace {

using Encoder = PFN_cuTensorMapEncodeTiled_v12000;

Encoder encoder(const char* kernel) {
  const auto function = driver_entry<Encoder>("cuTensorMapEncodeTiled", 12000);
  if (!function) device_failed(kernel, "the driver has no cuTensorMapEncodeTiled", false);
  return function;
}

RowMap encoded(const char* kernel, const void* data, const MapShape& shape) {
  if (const char* wrong = wrong_with(shape, reinterpret_cast<uintptr_t>(data)))
    device_failed(kernel, (std::string("a tensor map cannot be made: ") + wrong).c_str(), false);
  static const auto encode = encoder(kernel);
  const cuuint32_t steps[] = {1, 1, 1, 1};
  CUtensorMap map;
  const bool bytes = shape.element == 1;
  const CUresult status =
      encode(&map, bytes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
             static_cast<cuuint32_t>(shape.rank), const_cast<void*>(data), shape.sizes.data(),
             shape.strides.data(), shape.box.data(), steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             bytes ? CU_TENSOR_MAP_SWIZZLE_NONE : CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    device_failed(kernel, ("cuTensorMapEncodeTiled gives " + std::to_string(status)).c_str(),
                  false);
  RowMap row_map;
  static_assert(sizeof(map) == sizeof(row_map));
  std::memcpy(&row_map, &map, sizeof(row_map));
  return row_map;
}

}  // namespace

RowMap row_map(const char* kernel, const void* data, int64_t stride, int64_t rows, int heads,
               int head_dim, int box) {
  return encoded(kernel, data, row_map_shape(stride, rows, heads, head_dim, box));
}

RowMap byte_map(const char* kernel, const void* data, int64_t rows, int k, int box) {
  return encoded(kernel, data, byte_map_shape(rows, k, box));
}

RowMap image_map(const char* kernel, const void* data, const Images& x, int box_width,
                 int box_height) {
  return encoded(kernel, data, image_map_shape(x, box_width, box_height));
}

}  // namespace tessera::kernels::cuda
