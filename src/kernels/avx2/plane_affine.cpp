#include "kernels/plane_affine.h"

#if defined(__x86_64__)
#include "kernels/avx2/exact.h"
#include "tensor/scope.h"

TESSERA_AVX2_BEGIN
namespace tessera::kernels::avx2 {

#include "kernels/wide/plane_affine.inc"

}  // namespace tessera::kernels::avx2
TESSERA_AVX2_END
#endif  // __x86_64__
