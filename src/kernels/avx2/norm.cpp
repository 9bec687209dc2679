#include "kernels/norm.h"

#if defined(__x86_64__)
#include <cmath>

#include "kernels/avx2/vector.h"
#include "tensor/scope.h"

TESSERA_AVX2_BEGIN
namespace tessera::kernels::avx2 {

#include "kernels/wide/norm.inc"

}  // namespace tessera::kernels::avx2
TESSERA_AVX2_END
#endif  // __x86_64__
