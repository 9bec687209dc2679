#pragma once

#include <cuda_runtime_api.h>

namespace tessera::kernels::cuda {

/// Looks up a function of the driver at run time, because programs start without a driver; null if
/// the driver has none. `since`: the driver's version with this form, as 12000.
template <class Function>
Function driver_entry(const char* name, [[maybe_unused]] unsigned since) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &function, since, cudaEnableDefault, &result);
#else
  const cudaError_t status = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &result);
#endif
  if (status != cudaSuccess) cudaGetLastError();  // the next call would report the error
  return status == cudaSuccess && result == cudaDriverEntryPointSuccess
             ? reinterpret_cast<Function>(function)
             : nullptr;
}

}  // namespace tessera::kernels::cuda
