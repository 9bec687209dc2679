#include "kernels/norm.h"

#if defined(__x86_64__)
#include <cmath>

#include "kernels/avx512/vector.h"
#include "tensor/scope.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

#include "kernels/wide/norm.inc"

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
