#include "kernels/experts.h"

#if defined(__x86_64__)
#include <cstring>

#include "kernels/avx512/product.h"
#include "kernels/avx512/vector.h"
#include "tensor/scope.h"

TESSERA_AVX512_BEGIN
namespace tessera::kernels::avx512 {

#include "kernels/wide/combine.inc"
#include "kernels/wide/rows.inc"

const ExpertTiles& expert_tiles() { return wide::tiles_of<engine_for>(); }

void experts(const ExpertsArgs& args) { run_experts(expert_tiles(), args); }

}  // namespace tessera::kernels::avx512
TESSERA_AVX512_END
#endif  // __x86_64__
