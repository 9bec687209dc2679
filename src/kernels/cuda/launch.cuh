#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/spared.h"

namespace tessera::kernels::cuda {

/// The shape of a launch.
struct Launch {
  int64_t blocks = 1;  ///< along x; nothing is launched for 0
  int rows = 1;        ///< blocks along y
  int threads = 128;   ///< of a block, a multiple of 32
  int64_t shared = 0;  ///< bytes of dynamic shared memory of a block
  bool early = false;  ///< before those before it have ended: for kernels of after_those_before()
};

/// The shape for kernels that take one of `pieces` a thread and go on in steps of the grid.
constexpr int kSpreadThreads = 256;
constexpr Launch spread(int64_t pieces) {
  const int64_t blocks = ceil_div<int64_t>(pieces, kSpreadThreads), most = 0x7fffffff;
  return {.blocks = blocks < most ? blocks : most, .threads = kSpreadThreads};
}

/// The same, early.
constexpr Launch early(Launch shape) {
  shape.early = true;
  return shape;
}

/// The first piece of a thread, and the step to its next.
__device__ inline int64_t first_piece() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline int64_t piece_step() { return int64_t{gridDim.x} * blockDim.x; }

}  // namespace tessera::kernels::cuda

#if defined(__CUDACC__)
#include <tuple>

#include "kernels/cuda/device_scratch.h"
#include "kernels/device_error.h"
#include "tensor/scope.h"

namespace tessera::kernels::cuda {

inline cudaStream_t current_stream() {
  return static_cast<cudaStream_t>(tensor::current_scope().stream);
}

/// Throws tessera::Error for what the runtime refused; `kernel` names what was asked for.
inline void check(const char* kernel, cudaError_t status) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // so that the next call does not report it again
  device_failed(kernel, cudaGetErrorString(status), status == cudaErrorMemoryAllocation);
}

/// Whether the current device multiplies by warpgroups (wgmma), and this program was compiled so
/// for it: compute capability 9 alone, and sm_90a among the architectures.
bool has_warpgroups();

/// Queues kernel(args...) on the stream of the current scope.
template <class... Params, class... Args>
void launch(const char* name, void (*kernel)(Params...), const Launch& shape, Args... args) {
  if (shape.blocks == 0 || shape.rows == 0) return;
  const void* function = reinterpret_cast<const void*>(kernel);
  if (shape.shared > 48 * 1024)
    check(name, cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shape.shared)));
  std::tuple<Params...> values(args...);
  std::apply(
      [&](auto&... each) {
        void* pointers[] = {static_cast<void*>(&each)...};
        cudaLaunchAttribute early{};
        cudaLaunchConfig_t config{};
        config.gridDim =
            dim3(static_cast<unsigned>(shape.blocks), static_cast<unsigned>(shape.rows));
        config.blockDim = dim3(static_cast<unsigned>(shape.threads));
        config.dynamicSmemBytes = static_cast<size_t>(shape.shared);
        config.stream = current_stream();
        config.attrs = &early;
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        // One that comes early would sit on the multiprocessors that are left to others.
        const bool comes_early = shape.early && has_warpgroups() && nothing_spared();
        config.numAttrs = comes_early ? 1 : 0;
        check(name, cudaLaunchKernelExC(&config, function, pointers));
      },
      values);
}

using Scratch = DeviceScratch;

/// Multiprocessors of the current device.
inline int multiprocessors() {
  int device = 0, count = 0;
  check("device", cudaGetDevice(&device));
  check("device", cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

/// Bytes of shared memory that a block on the current device may have.
inline int most_shared() {
  int device = 0, bytes = 0;
  check("device", cudaGetDevice(&device));
  check("device", cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

}  // namespace tessera::kernels::cuda
#endif
