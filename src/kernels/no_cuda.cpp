#include "base/fail.h"
#include "kernels/gpu.h"
#include "kernels/peer_device.h"
#include "kernels/table.h"

namespace tessera::kernels {
namespace {

[[noreturn]] void refuse() {
  fail(ErrorCode::usage,
       "`device` cuda: this program was built without CUDA; use `device` cpu, or build it where a "
       "CUDA toolkit is installed");
}

}  // namespace

const KernelTable& cuda_table() { refuse(); }

int gpu_count() { refuse(); }

std::shared_ptr<tensor::DeviceRuntime> open_gpu(int) { refuse(); }

std::unique_ptr<PeerDevice> open_peer_device() { refuse(); }

}  // namespace tessera::kernels
