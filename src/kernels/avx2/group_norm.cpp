#include "kernels/group_norm.h"

#if defined(__x86_64__)
#include <algorithm>

#include "kernels/avx2/vector.h"
#include "kernels/scratch.h"
#include "tensor/scope.h"

TESSERA_AVX2_BEGIN
namespace tessera::kernels::avx2 {

constexpr int kRuns = 2;

#include "kernels/wide/group_norm.inc"

}  // namespace tessera::kernels::avx2
TESSERA_AVX2_END
#endif  // __x86_64__
