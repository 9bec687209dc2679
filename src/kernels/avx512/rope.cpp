#include "kernels/rope.h"

#if defined(__x86_64__)
#include <cstring>

#include "kernels/avx512/exact.h"
#include "tensor/scope.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

#include "kernels/wide/rope.inc"

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
