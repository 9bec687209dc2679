#include <mutex>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/sm90.cuh"

namespace tessera::kernels::cuda {
namespace {

// Never launched. Compiled with all other kernels, so its shared memory tells the compiled
// architecture.
__global__ void compiled_form_kernel() {
#if TESSERA_WARPGROUPS
  __shared__ volatile int mark;
  mark = 1;
#endif
}

bool ask(int device) {
  int major = 0;
  check("device", cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (major != 9) return false;
  cudaFuncAttributes form{};
  check("device",
        cudaFuncGetAttributes(&form, reinterpret_cast<const void*>(compiled_form_kernel)));
  return form.sharedSizeBytes > 0;
}

}  // namespace

bool has_warpgroups() {
  static std::mutex mutex;
  static std::vector<signed char> answers;  // by device: 2 yes, 1 no, 0 unknown
  int device = 0;
  check("device", cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  const auto index = static_cast<size_t>(device);
  if (answers.size() <= index) answers.resize(index + 1);
  if (answers[index] == 0) answers[index] = ask(device) ? 2 : 1;
  return answers[index] == 2;
}

}  // namespace tessera::kernels::cuda
