#include "kernels/rope.h"

#if defined(__x86_64__)
#include <cstring>

#include "kernels/avx2/exact.h"
#include "tensor/scope.h"

TESSERA_AVX2_BEGIN
namespace tessera::kernels::avx2 {

#include "kernels/wide/rope.inc"

}  // namespace tessera::kernels::avx2
TESSERA_AVX2_END
#endif  // __x86_64__
