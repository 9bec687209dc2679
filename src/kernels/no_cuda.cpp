#include "base/fail.h"
#include "kernels/table.h"

namespace tessera::kernels {

const KernelTable& cuda_table() {
  fail(ErrorCode::usage,
       "this program was built without CUDA; use --device cpu, or build it where a CUDA toolkit is "
       "installed");
}

}  // namespace tessera::kernels
