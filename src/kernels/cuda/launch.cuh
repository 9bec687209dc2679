#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/spared.h"

namespace tessera::kernels::cuda {

/// Shape of a launch.
struct Launch {
  int64_t blocks = 1;  ///< blocks along x; 0 launches nothing
  int rows = 1;        ///< blocks along y
  int threads = 128;   ///< threads of a block, a multiple of 32
  int64_t shared = 0;  ///< bytes of dynamic shared memory for each block
  bool early = false;  ///< starts before earlier kernels have ended; requires after_those_before()
  bool resident = false;  ///< all blocks run at once, or the launch fails; see resident_blocks()
};

/// Launch shape for kernels in which each thread takes one of `pieces` at a time, in steps of the
/// grid.
constexpr int kSpreadThreads = 256;
constexpr Launch spread(int64_t pieces) {
  const int64_t blocks = ceil_div<int64_t>(pieces, kSpreadThreads), most = 0x7fffffff;
  return {.blocks = blocks < most ? blocks : most, .threads = kSpreadThreads};
}

/// Same shape, launched early.
constexpr Launch early(Launch shape) {
  shape.early = true;
  return shape;
}

/// First piece of a thread, and the step to the next.
__device__ inline int64_t first_piece() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline int64_t piece_step() { return int64_t{gridDim.x} * blockDim.x; }

}  // namespace tessera::kernels::cuda

#if defined(__CUDACC__)
#include <tuple>

#include "kernels/cuda/device_scratch.h"
#include "kernels/device_error.h"
#include "tensor/launches.h"
#include "tensor/scope.h"

namespace tessera::kernels::cuda {

inline cudaStream_t current_stream() {
  return static_cast<cudaStream_t>(tensor::current_scope().stream);
}

/// Throws tessera::Error for a failed status; `kernel` names the operation.
inline void check(const char* kernel, cudaError_t status) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // prevents the next call from reporting the error again
  device_failed(kernel, cudaGetErrorString(status), status == cudaErrorMemoryAllocation);
}

/// True if the current device has warpgroup products (wgmma) and this program was compiled for
/// them: compute capability 9, with sm_90a among the architectures.
bool has_warpgroups();

/// Queues kernel(args...) on the stream of the current scope.
template <class... Params, class... Args>
void launch(const char* name, void (*kernel)(Params...), const Launch& shape, Args... args) {
  if (shape.blocks == 0 || shape.rows == 0) return;
  tensor::count_launch(name);
  const void* function = reinterpret_cast<const void*>(kernel);
  if (shape.shared > 48 * 1024)
    check(name, cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shape.shared)));
  std::tuple<Params...> values(args...);
  std::apply(
      [&](auto&... each) {
        void* pointers[] = {static_cast<void*>(&each)...};
        cudaLaunchAttribute attributes[2] = {};
        cudaLaunchConfig_t config{};
        config.gridDim =
            dim3(static_cast<unsigned>(shape.blocks), static_cast<unsigned>(shape.rows));
        config.blockDim = dim3(static_cast<unsigned>(shape.threads));
        config.dynamicSmemBytes = static_cast<size_t>(shape.shared);
        config.stream = current_stream();
        config.attrs = attributes;
        // An early kernel would occupy multiprocessors reserved for others.
        if (shape.early && has_warpgroups() && nothing_spared()) {
          cudaLaunchAttribute& early = attributes[config.numAttrs++];
          early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
          early.val.programmaticStreamSerializationAllowed = 1;
        }
        if (shape.resident) {
          cudaLaunchAttribute& resident = attributes[config.numAttrs++];
          resident.id = cudaLaunchAttributeCooperative;
          resident.val.cooperative = 1;
        }
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

/// Blocks of this shape that run at once on the multiprocessors left to kernels.
template <class... Params>
int resident_blocks(const char* name, void (*kernel)(Params...), const Launch& shape) {
  const void* function = reinterpret_cast<const void*>(kernel);
  check(name, cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shape.shared)));
  int each = 0;
  check(name, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, function, shape.threads,
                                                            static_cast<size_t>(shape.shared)));
  return each * unspared(multiprocessors());
}

/// Maximum bytes of shared memory of a block on the current device.
inline int most_shared() {
  int device = 0, bytes = 0;
  check("device", cudaGetDevice(&device));
  check("device", cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return bytes;
}

}  // namespace tessera::kernels::cuda
#endif
