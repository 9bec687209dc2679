#include "kernels/group_norm.h"

#if defined(__x86_64__)
#include <algorithm>

#include "kernels/avx512/vector.h"
#include "kernels/scratch.h"
#include "tensor/scope.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

constexpr int kRuns = 8;

#include "kernels/wide/group_norm.inc"

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
